"""What a container asks for, and the config.json with which it gets it. Standard library and PyYAML; no daemon, no network."""
