"""The history of devices, slices, jobs, queues and users: what is kept, for how long, and how it is summed up. Pure."""
