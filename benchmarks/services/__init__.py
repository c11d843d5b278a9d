"""Services under load: replicas that are replaced and killed, and one that sleeps."""
