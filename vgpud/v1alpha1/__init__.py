"""The gRPC API. Its modules are generated from protos/vgpud/v1alpha1/vgpud.proto by protos/generate.py."""
