"""The commands of the queue: submit, queue, quota, usage, explain, simulate."""
