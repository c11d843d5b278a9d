"""What the Kubernetes driver costs: preparing claims, restarts, publishing, memory."""
