"""What the Kubernetes driver costs: preparing claims, restarts, publishing, memory."""

import vgpud.client.grpc_import  # noqa: F401  before any module here imports grpc: else its fork handlers end parts
