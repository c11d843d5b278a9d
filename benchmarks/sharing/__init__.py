"""The table by which the arbiter is judged: every row on a device without any hook and under our arbiter.

W1 shares of saturating tenants, W2 launch-bound tenants among themselves, W2b a launch-bound tenant beside a saturating
one, W2c CIFAR trainers, W3 long kernels, deep queues and graphs, W4 inference beside training, W5 caps on an idle
device, W6 a neighbour that goes and comes back, W7 shares that change while all work, W8 what it costs who is alone, W9
64 tenants with 1000 processes, W10 adversaries, G1 tenants whose kernels spin for each other over two devices.

W1, W2, W2b, W4 and W5 also run in two plain ways to share a device (benchmarks/sharing/plain.py), to compare with.
"""
