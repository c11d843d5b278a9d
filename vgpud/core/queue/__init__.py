"""The queue, pure: jobs, queues, quotas, and what starts where. The daemon and the simulator drive the same code."""
