"""A container's request, and the config.json that grants it. Reads the host; no daemon, no network."""
