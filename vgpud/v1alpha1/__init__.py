"""The gRPC API, generated from protos/vgpud/v1alpha1/vgpud.proto by protos/generate.py; nothing here is written by hand."""
