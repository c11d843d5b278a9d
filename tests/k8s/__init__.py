"""The DRA driver: its core, against a fake kubelet and API server, and against real ones where they are."""
