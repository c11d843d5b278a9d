"""A small CIFAR-10 training program in three frameworks: the unmodified tenants of the demo."""
