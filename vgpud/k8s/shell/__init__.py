"""What the driver's core is connected to: kubelet, the API server, and the node's vgpud."""
