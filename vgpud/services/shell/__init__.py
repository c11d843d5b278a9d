"""What the balancer does: calls of the daemon, checks, connections, files."""
