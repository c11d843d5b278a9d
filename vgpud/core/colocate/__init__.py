"""Jobs that share a device: which lose by it, which are not put together again, and what each of them really uses."""
