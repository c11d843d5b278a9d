"""The order in which jobs of a queue are served: one small file for each policy, with its paper."""
