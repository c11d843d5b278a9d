"""Pure: what is published to Kubernetes, what a ResourceClaim asks for, and what the driver does about it."""
