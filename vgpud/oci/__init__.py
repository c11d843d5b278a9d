"""What a container asks for, and the config.json with which it gets it. Reads the host; no daemon, no network."""
