"""Executable specifications that tests and benchmarks compare the product with. Nothing in `vgpud/` imports them."""
