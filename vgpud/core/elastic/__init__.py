"""Jobs that stretch while they run: how many workers are worth it, and who makes room for whom."""
