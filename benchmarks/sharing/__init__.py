"""The table by which the arbiter is judged: every row on a device without any hook and under our arbiter.

Rows that are here: W1 shares of saturating tenants, W2 launch-bound tenants among themselves, W2b a launch-bound tenant
beside a saturating one, W2c CIFAR trainers, W3 long kernels, deep queues and graphs, W4 inference beside training, W5
caps on an idle device, W6 a neighbour that goes and comes back, W7 shares that change while all work, W10 adversaries.

Not here yet: W8 (what the gate costs who is
alone; benchmarks.launch_overhead has a part of it), W9 (64 and 1000 tenants); W4's latency class, which slices do not have yet (its tenants run as ordinary slices); the plain fixed-slice and
rate-limiting baselines; plots; the real device (completed work against solo in the place of the busy log).
"""
