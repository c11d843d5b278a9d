"""Objects around a part of a GPU: a Deployment with its Service, and a Notebook of Kubeflow.

A Notebook has no claims: its type is of Kubernetes 1.24, and the server drops the fields that it does not know, which
would leave the notebook without a GPU. So it asks for a fixed part by its limits.
"""

from __future__ import annotations

import re
from typing import Any

from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.k8s.core.names import FIXED_MILLI

#: what Kubeflow's controller expects a notebook to listen at
NOTEBOOK_PORT = 8888
#: a name that a Service and the pods of a Notebook can have
NAME = re.compile("[a-z](?:[-a-z0-9]{0,50}[a-z0-9])?")
#: DeviceClass of a whole GPU, by the name that Kubernetes gives it among a container's limits
WHOLE = "deviceclass.resource.kubernetes.io/vgpu"
_CLAIM = "gpu"


def limit_of(gpus_milli: int) -> str | None:
    """The resource that is so much of one GPU; None: there is no such fixed part."""
    if gpus_milli == MILLI_PER_DEVICE:
        return WHOLE
    name = next((name for name, milli in FIXED_MILLI.items() if milli == gpus_milli), None)
    return f"vgpu.dev/{name}" if name else None


def notebook_object(name: str, image: str, resource: str) -> dict[str, Any]:
    """Kubeflow's controller makes the pod's Service and its address. `resource`: as limit_of() returns it."""
    container = {"name": name, "image": image, "resources": {"limits": {resource: "1"}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def deployment_objects(name: str, image: str, port: int, replicas: int) -> list[dict[str, Any]]:
    """A Deployment whose pods have a claim each of the template `name`, and its Service. An old pod ends before a new
    one starts: no update waits for a second part of a GPU."""
    labels = {"app": name}
    container = {
        "name": name,
        "image": image,
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}},
        "resources": {"claims": [{"name": _CLAIM}]},
    }
    pod = {
        "resourceClaims": [{"name": _CLAIM, "resourceClaimTemplateName": name}],
        "containers": [container],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {**labels}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {**labels}}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"port": port, "targetPort": port}]},
    }
    return [deployment, service]
