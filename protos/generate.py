"""Writes vgpud/v1alpha1/ and vgpud/k8s/kubelet_api/ from protos/; `--check` says whether what is committed is current.

Generated code needs a runtime at least as new as its generator, so the generator is pinned to the oldest runtime that
we accept (GENERATOR, kept apart from the environment under build/). The check needs no generator: MANIFEST holds the
hashes of the input and of every output, so an edited output and a proto without regeneration are both found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KUBELET = ("registration", "dra_v1", "health", "device_plugin", "pod_resources")
PROTOS = ("vgpud/v1alpha1/vgpud.proto", *(f"vgpud/k8s/kubelet_api/{name}.proto" for name in KUBELET))
GENERATOR = "grpcio-tools==1.71.2"
TOOLS = ROOT / "build" / "protoc-1.71.2"
ENDS = ("pb2.py", "pb2.pyi", "pb2_grpc.py", "pb2_grpc.pyi")
OUTPUTS = tuple(f"{proto.removesuffix('.proto')}_{end}" for proto in PROTOS for end in ENDS)
MANIFEST = ROOT / "vgpud" / "v1alpha1" / "generated.json"


def hashes() -> dict[str, str]:
    """SHA-256 of the protos and of every generated file, by path relative to the root; "" for a missing one."""
    paths = (*(f"protos/{proto}" for proto in PROTOS), *OUTPUTS)
    return {p: hashlib.sha256((ROOT / p).read_bytes()).hexdigest() if (ROOT / p).exists() else "" for p in paths}


def generate() -> None:
    """Runs the pinned generator (and mypy-protobuf of this environment for the gRPC stubs' types)."""
    if not TOOLS.exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(TOOLS), GENERATOR], check=True
        )
    env = dict(os.environ, PYTHONPATH=str(TOOLS), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    out = str(ROOT)
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'protos'}", f"-I{TOOLS / 'grpc_tools' / '_proto'}"]
        + [f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}", f"--mypy_grpc_out={out}", *PROTOS],
        check=True,
        env=env,
    )
    MANIFEST.write_text(json.dumps({"generator": GENERATOR, "sha256": hashes()}, indent=2) + "\n")


def check() -> int:
    """0 when the committed files match, else 1 with the names of those that do not on stderr."""
    committed = json.loads(MANIFEST.read_text())["sha256"] if MANIFEST.exists() else {}
    stale = [path for path, digest in hashes().items() if committed.get(path) != digest]
    for path in stale:
        print(f"{path} does not match vgpud/v1alpha1/generated.json: run `python protos/generate.py`", file=sys.stderr)
    return 1 if stale else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    if parser.parse_args().check:
        return check()
    generate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
