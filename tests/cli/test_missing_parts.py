"""Each optional part of pyproject.toml removed: no command ends in an internal error; a line says what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vgpud.cli.main import COMMANDS
from vgpud.errors import missing_part

ROOT = Path(__file__).parents[2]
#: extra -> what is imported of it
PARTS = {
    "gpu": ("cupy",),
    "demo": ("matplotlib", "numpy", "tinygrad"),
    "predict": ("numpy", "onnx", "sklearn", "torch"),
    "elastic": ("torch",),
    "remote": ("cryptography",),
    "k8s": ("lightkube",),
    "ray": ("ray",),
    "service": ("h11",),
    "oidc": ("httpx", "jwt"),
    "console": ("bcrypt", "jinja2", "python_multipart", "multipart", "starlette", "uvicorn"),
}
#: in sitecustomize.py: imports behave as if these packages were not there
REMOVAL = """
import os, sys
class Without:
    def __init__(self, finder): self.finder = finder
    def __getattr__(self, name): return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        gone = name.split(".")[0] in os.environ["VGPU_TEST_MISSING"].split()
        return None if gone else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
TRACE = "job,submitted_s,duration_s,gpus\na,0,10,1\n"


VGPU, DRIVER, ELASTIC = (
    ("-m", "vgpud.cli.main"),
    ("-c", "from vgpud.k8s.main import main; main()"),
    ("-m", "vgpud.elastic"),
)


def run(
    folder: Path, missing: tuple[str, ...], program: tuple[str, ...], *words: str
) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(REMOVAL)
    (folder / "model.onnx").write_bytes(b"x")
    (folder / "model.py").write_text("def model(batch): pass\n")
    (folder / "kubeconfig").write_text("")
    path = f"{folder}:{ROOT}"
    env = os.environ | {"VGPU_TEST_MISSING": " ".join(missing), "PYTHONPATH": path, "VGPU_HOST": "unix:///nowhere/x"}
    command = [sys.executable, *program, *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


#: (extra, what says that it is needed, or "": the command does without; the words of vgpu)
CASES = [
    ("console", r"pip install 'vgpud\[console\]'", ("console", "serve", "--runtime-dir", "run")),
    ("console", r"no console answers at run/", ("console", "open", "--runtime-dir", "run")),
    ("console", r"no console answers at run/", ("console", "open", "--print", "--runtime-dir", "run")),
    ("remote", r"pip install 'vgpud\[remote\]'", ("cert", "init", "--tls-dir", "tls", "--name", "host")),
    ("remote", r"pip install 'vgpud\[remote\]'", ("cert", "user", "root", "--tls-dir", "tls")),
    ("predict", r"pip install 'vgpud\[predict\]'", ("predict", "model.onnx", "--gpu", "h200")),
    ("predict", r"pip install 'vgpud\[predict\]'", ("predict", "model:model", "--gpu", "h200")),
    ("service", r"pip install 'vgpud\[service\]'", ("service", "start", "--gpus", "0.5", "--", "true")),
    ("demo", "matplotlib", ("whatif", "--trace", "x.csv", "--cluster", "1x1", "--plots")),
]


@pytest.mark.parametrize(("extra", "line", "words"), CASES)
def test_a_command_without_its_part_says_what_to_install(
    tmp_path: Path, extra: str, line: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "x.csv").write_text("")
    if words[-1] == "--plots":
        words += (str(tmp_path / "plots"),)
    done = run(tmp_path, PARTS[extra], VGPU, *words)
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr
    assert re.search(line, done.stderr), done
    assert done.stderr.count("\n") == 1 and done.returncode


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_needs_no_part(name: str, tmp_path: Path) -> None:
    everything = tuple(sorted({package for part in PARTS.values() for package in part}))
    done = run(tmp_path, everything, VGPU, name, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_driver_of_kubernetes_says_what_to_install(tmp_path: Path) -> None:
    options = ("--node", "n", "--kubelet-dir", str(tmp_path), "--kubeconfig", "kubeconfig")
    done = run(tmp_path, PARTS["k8s"], DRIVER, *options)
    assert "Traceback" not in done.stderr
    assert "pip install 'vgpud[k8s]'" in done.stderr, done


def test_elastic_workers_say_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, PARTS["elastic"], ELASTIC)
    assert done.stderr.splitlines()[-1].endswith("vgpud.elastic needs torch: run pip install 'vgpud[elastic]'")


def test_the_predictor_s_pytorch_is_one_that_the_simulated_device_runs() -> None:
    """`vgpu predict run` and `vgpu sim run` take the PyTorch that the extra brings: it has no newer names."""
    text = (ROOT / "pyproject.toml").read_text()
    (newest,) = re.findall(r'^predict = .*"torch>=[\d.]+,<=([\d.]+)"', text, re.MULTILINE)
    listed = [path.stem.removeprefix("torch-") for path in (ROOT / "shim/simcuda/names").glob("torch-*.txt")]
    assert newest == max(listed, key=lambda version: [int(part) for part in version.split(".")])


def test_each_part_is_named_wherever_it_is_missed() -> None:
    """The one place for commands that do not look first."""
    text = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[project.")[0]
    extras = set(re.findall(r"^(\w+) = \[", text, re.MULTILINE)) - {"test", "dev", "pytorch"}  # for programs
    assert extras == set(PARTS)
    for package in {package for part in PARTS.values() for package in part}:
        said = missing_part(ModuleNotFoundError(f"No module named {package!r}", name=f"{package}.inner"))
        (extra,) = re.findall(rf"the package {package} is not installed: run `pip install 'vgpud\[(\w+)\]'`", said)
        assert package in PARTS[extra]
    assert missing_part(ModuleNotFoundError(name="vgpud.nothing")) == missing_part(ValueError()) == ""
