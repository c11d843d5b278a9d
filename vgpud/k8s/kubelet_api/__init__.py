"""Generated from protos/vgpud/k8s/kubelet_api/: kubelet's interfaces for plugins."""
