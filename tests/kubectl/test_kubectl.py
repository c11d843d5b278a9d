"""`kubectl vgpu`: slices, resizes and explanations by pod names, through a kubectl that answers from a file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.parts import NODE, allocated
from vgpud.k8s.core.claim_objects import read_claim
from vgpud.k8s.core.model import Gpu, Ref
from vgpud.k8s.core.published import Policy, offers, specs
from vgpud.k8s.core.status import news

MIB = 1 << 20
GPUS = [Gpu(f"GPU-{n}", n, "H200", 140_400 * MIB, 2 * MIB) for n in range(2)]
POD = "aaaaaaaa-0000-1111-2222-333333333333"
#: logs its words, and answers by the first of its answers whose words all are among them
FAKE = """#!{python}
import json, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
for wanted, answer, code in json.load(open({answers!r})):
    if set(wanted) <= set(words):
        print(answer if isinstance(answer, str) else json.dumps(answer), file=sys.stderr if code else sys.stdout)
        sys.exit(code)
print("Error from server (NotFound): " + " ".join(words), file=sys.stderr)
sys.exit(1)
"""

Object = dict[str, Any]
Answers = list[tuple[list[str], Any, int]]


class Plugin:
    """The installed plugin with a fake kubectl, or below a real one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "bin").mkdir()

    def answers(self, *answers: tuple[list[str], Any, int]) -> None:
        (self.folder / "answers").write_text(json.dumps(answers))
        program = self.folder / "bin" / "kubectl"
        text = FAKE.format(python=sys.executable, log=str(self.log), answers=str(self.folder / "answers"))
        program.write_text(text)
        program.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        command = [sys.executable, "-c", "from vgpud.kubectl.main import main; main(prog_name='kubectl vgpu')", *words]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=120)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def claim(name: str, *devices: tuple[str, dict[str, str]], ready: bool = True) -> Object:
    """As the scheduler and the driver leave it, with a pod of the same name."""
    made = allocated(name, *devices, pods=(POD,))
    made["status"]["reservedFor"][0]["name"] = "train-0"
    request = {
        "name": "r0",
        "exactly": {"deviceClassName": "vgpu", "count": 1, "capacity": {"requests": devices[0][1]}},
    }
    made["spec"] = {"devices": {"requests": [request]}}
    if ready:
        asked = read_claim(made, Ref(made["metadata"]["uid"], "team", name), offers(GPUS), NODE, 0)
        made["status"]["devices"] = news(made, asked, f"k-{made['metadata']['uid']}", asked.granted)
    return made


def pod(*claims: str, node: str = NODE) -> Object:
    named = [{"name": name, "resourceClaimTemplateName": "t"} for name in claims]
    made = [{"name": name, "resourceClaimName": name} for name in claims]
    why = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: cannot allocate all claims"}
    status = {
        "phase": "Running" if node else "Pending",
        "resourceClaimStatuses": made,
        "conditions": [] if node else [why],
    }
    spec = {"resourceClaims": named, **({"nodeName": node} if node else {})}
    return {"metadata": {"name": "train-0", "namespace": "team", "uid": POD}, "spec": spec, "status": status}


def driver() -> Object:
    container = {"name": "driver", "args": ["--kubelet-dir=/k", "--socket=/run/vgpud/vgpud.sock"]}
    return {"metadata": {"name": "drv-x", "namespace": "vgpu-system"}, "spec": {"containers": [container]}}


def make_list(*items: Object) -> Object:
    return {"kind": "List", "items": list(items)}


CLAIMS = "resourceclaims.resource.k8s.io"
HALF = ("gpu-0", {"sm": "500", "memory": "20Gi", "smMax": "1k"})


def test_slices_are_shown_with_their_pods(plugin: Plugin) -> None:
    half = claim("half", HALF)
    other = claim("other", ("gpu-1", {"sm": "250", "memory": "1Gi"}))
    other["status"]["reservedFor"][0]["name"] = "serve-1"
    plugin.answers(([CLAIMS], make_list(other, half, claim("waits", HALF, ready=False)), 0))
    lines = plugin.run("slices", "-n", "team").stdout.splitlines()
    assert lines[0].split() == ["NAMESPACE", "POD", "CLAIM", "NODE", "DEVICE", "SM", "MEMORY", "SLICE"]
    name = f"k-{half['metadata']['uid']}"
    assert lines[1].split() == ["team", "train-0", "half", NODE, "gpu-0", "0.5..1", "20GiB", name]
    assert len(lines) == 3 and plugin.calls[0][:4] == ["get", CLAIMS, "--namespace", "team"]
    shown = json.loads(plugin.run("slices", "train-0", "-A", "-o", "json").stdout)["slices"]
    assert [(one["pods"], one["slice"]) for one in shown] == [(["train-0"], name)]
    assert "--all-namespaces" in plugin.calls[1]


def test_a_resize_runs_where_the_pod_runs(plugin: Plugin) -> None:
    half = claim("half", HALF)
    name = f"k-{half['metadata']['uid']}"
    plugin.answers(
        (["exec"], "NAME ...\n\x1b[2J", 0),
        (["pods"], make_list(driver()), 0),
        ([CLAIMS], make_list(half), 0),
        (["pod", "train-0"], pod("half"), 0),
    )
    done = plugin.run("resize", "train-0", "-n", "team", "--context", "prod", "--max", "0.8", "--priority", "5")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == "NAME ...\n\\x1b[2J\n"
    *_, pods, command = plugin.calls
    assert f"--field-selector=spec.nodeName={NODE},status.phase=Running" in pods
    assert pods[pods.index("--namespace") + 1] == "vgpu-system"
    words = ["exec", "drv-x", "--namespace", "vgpu-system", "-c", "driver", "--", "vgpu", "--host"]
    change = ["unix:///run/vgpud/vgpud.sock", "slice", "set", name, "--max", "0.8", "--priority", "5"]
    assert command == ["--context=prod", *words, *change]


@pytest.mark.parametrize(
    ("words", "answers", "code", "message"),
    [
        (["train-0", "--max", "1"], [], 4, "NotFound"),
        (["train-0"], [], 2, "specify a change"),
        (["train-0", "--max", "1"], [(["pod"], pod("half"), 0), ([CLAIMS], make_list(), 0)], 4, "has no slice"),
        (
            ["train-0", "--max", "1"],
            [(["pod"], pod("half", "two"), 0), ([CLAIMS], make_list(claim("half", HALF), claim("two", HALF)), 0)],
            2,
            "add --claim half or --claim two",
        ),
        (
            ["train-0", "--max", "1"],
            [(["pod"], pod("half"), 0), ([CLAIMS], make_list(claim("half", HALF)), 0), (["pods"], make_list(), 0)],
            4,
            "name another --driver-namespace",
        ),
        (
            ["train-0", "--max", "1"],
            [(["pod"], 'Error from server (Forbidden): pods "train-0" is forbidden', 1)],
            5,
            "is forbidden",
        ),
    ],
    ids=["no pod", "no change", "no slice", "several", "no driver", "forbidden"],
)
def test_what_cannot_be_resized(plugin: Plugin, words: list[str], answers: Answers, code: int, message: str) -> None:
    plugin.answers(*answers)
    done = plugin.run("resize", "-n", "team", *words)
    assert (done.returncode, done.stdout) == (code, "") and message in done.stderr


def test_a_pod_that_waits_is_explained_by_what_is_free(plugin: Plugin) -> None:
    waits = claim("half", HALF, ready=False)
    del waits["status"]["allocation"]
    other = claim("other", ("gpu-1", {"sm": "250", "memory": "1Gi"}))
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 2}
    published = [{"spec": {**spec, "pool": pool}} for spec in specs(GPUS, NODE, Policy())]
    published[1]["spec"]["devices"][0]["taints"] = [{"key": "vgpu.dev/drained", "effect": "NoSchedule"}]
    event = {"reason": "FailedScheduling", "message": "no\nroom", "lastTimestamp": "2026-11-29T00:00:00Z"}
    plugin.answers(
        ([CLAIMS], make_list(waits, other), 0),
        (["resourceslices.resource.k8s.io"], make_list(*published), 0),
        (["events"], make_list(event), 0),
        (["pod", "train-0"], pod("half", node=""), 0),
    )
    done = plugin.run("explain", "train-0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "pod team/train-0: Pending: 0/3 nodes are available: cannot allocate all claims",
        "claim half: half",
        "  asks r0: 1 of class vgpu, sm 500, memory 20Gi, smMax 1k",
        "  not allocated",
        "warning FailedScheduling: no\\nroom",
        "warning FailedScheduling: no\\nroom",
        "GPUs with the most free:",
        f"  gpu-1 of {NODE}: 0.75 GPU and 136.1GiB are free",
        f"  gpu-0 of {NODE}: tainted, vgpu.dev/drained",
    ]


def test_a_pod_that_runs_is_explained_by_what_it_has(plugin: Plugin) -> None:
    half = claim("half", HALF)
    plugin.answers(
        ([CLAIMS], make_list(half), 0), (["events"], make_list(), 0), (["pod", "train-0"], pod("half", "gone"), 0)
    )
    lines = plugin.run("explain", "train-0").stdout.splitlines()
    name = f"k-{half['metadata']['uid']}"
    assert lines == [
        f"pod team/train-0: Running on node {NODE}",
        "claim half: half",
        "  asks r0: 1 of class vgpu, sm 500, memory 20Gi, smMax 1k",
        f"  allocated gpu-0 of {NODE}",
        f"  has 0.5..1 of the SM time and 20GiB of gpu-0 (slice {name})",
        "claim gone: gone, which is gone",
    ]


def test_who_may_not_see_other_namespaces_is_notified_of_it(plugin: Plugin) -> None:
    waits = claim("half", HALF, ready=False)
    del waits["status"]["allocation"]
    forbidden = "Error from server (Forbidden): resourceslices is forbidden"
    plugin.answers(
        ([CLAIMS], make_list(waits), 0),
        (["resourceslices.resource.k8s.io"], forbidden, 1),
        (["events"], make_list(), 0),
        (["pod", "train-0"], pod("half", node=""), 0),
    )
    assert plugin.run("explain", "train-0").stdout.splitlines()[-1] == f"free capacity is not known: {forbidden}"


def test_without_kubectl_it_says_what_to_do(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = plugin.run("slices")
    assert done.returncode == 1 and "there is no kubectl in PATH" in done.stderr


def test_kubectl_finds_the_plugin_by_the_name_of_its_entry_point(tmp_path: Path) -> None:
    """As kubectl looks for plugins: an executable kubectl-vgpu in PATH."""
    root = Path(__file__).resolve().parents[2]
    ((module, name),) = re.findall(r'^kubectl-vgpu = "(.+):(.+)"$', (root / "pyproject.toml").read_text(), re.MULTILINE)
    script = tmp_path / "kubectl-vgpu"
    script.write_text(f"#!{sys.executable}\nfrom {module} import {name}\n{name}()\n")
    script.chmod(0o755)
    kubectl = shutil.which("kubectl")
    command = [kubectl, "vgpu", "--help"] if kubectl else [str(script), "--help"]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0 and all(word in done.stdout for word in ("explain", "resize", "slices")), done.stderr
