"""The DRA driver: slices of vgpud for the pods of Kubernetes."""
