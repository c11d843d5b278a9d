"""`kubectl vgpu`: slices of a cluster's pods by the names of the pods."""
