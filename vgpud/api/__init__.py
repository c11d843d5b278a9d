"""The gRPC API: services, permissions, and the conversion between messages and the core's data."""
