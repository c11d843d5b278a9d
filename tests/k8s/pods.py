"""Claims and pods of the tests on a real node, as plain manifests, and the programs that run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

ROOT = Path(__file__).resolve().parents[2]
#: the base image of the container tests; kubelet is to take it as it was imported
IMAGE = "docker.io/vgpu-test/pod:1"
#: where containers find the programs
PROGRAMS_AT = "/programs"
KERNEL_US = 200
#: without a break, and says what has completed; VIEW: what a program sees of its devices, as one JSON line
LOAD = (f"{PROGRAMS_AT}/load", "--kernel-us", str(KERNEL_US), "--seconds", "3600")
VIEW = f"{PROGRAMS_AT}/view"
WAITS = ("sleep", "infinity")


def build_programs(folder: Path) -> None:
    """Compiles the programs into a new folder, and writes the model by which simulated kernels take their time."""
    folder.mkdir()
    view = folder / "view"
    flags = ["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", "tests/sim", "-iquote", "shim"]
    command = [os.environ.get("CC", "gcc"), *flags, "-o", str(view), "tests/containers/programs/view.c"]
    subprocess.run([*command, "vgpud/lib/sim/libcuda.so.1", "-ldl"], cwd=ROOT, check=True)
    shutil.copy2(harness.build("tenants/load.c"), folder)
    harness.spin_model(folder, [KERNEL_US])


def amounts(sm: int, memory: str, **quantities: str) -> dict[str, Any]:
    """What one device of a request consumes: milli-GPU, and memory as a quantity."""
    return {"capacity": {"requests": {"sm": str(sm), "memory": memory, **quantities}}}


def on_gpu(index: int) -> dict[str, Any]:
    """Only this GPU will do."""
    return {"selectors": [{"cel": {"expression": f"device.attributes['gpu.vgpu.dev'].index == {index}"}}]}


def claim(name: str, *requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A ResourceClaim with a request for each of these, r0, r1 ..."""
    made = [
        {"name": f"r{n}", "exactly": {"deviceClassName": "vgpu", "count": 1, **request}}
        for n, request in enumerate(requests)
    ]
    spec = {"devices": {"requests": made, **fields}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(
    name: str, *commands: Sequence[str], claim_name: str = "", template: str = "", restart: str = "Never"
) -> dict[str, Any]:
    """A pod with a container for each command, c0, c1 ..., which all have the claim; without commands it waits."""
    uses = {"claims": [{"name": "gpu"}]} if claim_name or template else {}
    container = {
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "env": [{"name": "VGPU_SIM_KERNELS", "value": f"{PROGRAMS_AT}/kernels.model"}],
        "volumeMounts": [{"name": "programs", "mountPath": PROGRAMS_AT, "readOnly": True}],
        "resources": uses,
    }
    spec: dict[str, Any] = {
        "containers": [
            {"name": f"c{n}", "command": list(command), **container} for n, command in enumerate(commands or [WAITS])
        ],
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 1,
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if claim_name:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim_name}]
    elif template:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
