"""A job script's `#VGPU` lines, what overrides them, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vgpud.v1alpha1 import vgpud_pb2 as pb

USAGE = 2
SCRIPT = """\
#!/bin/bash -e
# Trains the model.

#VGPU --gpus 0.5 --mem 8G --env A=script
#VGPU  --name 'two words' --hold --env B=script --device 0
#VGPUX is a comment
#VGPU
python train.py
#VGPU --gpus 4
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job script, in the working directory."""
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return path


def submitted_spec(daemon: Any) -> pb.JobSpec:
    (request,) = [one for one in daemon.queue.requests if isinstance(one, pb.SubmitJobRequest)]
    return request.spec


@pytest.mark.parametrize("word", ["run.sh", "./run.sh", "/run.sh"])
def test_its_leading_lines_are_options(vgpu: Any, daemon: Any, script: Path, word: str) -> None:
    word = str(script) if word == "/run.sh" else word
    result = vgpu("submit", word, "--gpus", "3", host=daemon.host)
    assert result.code == 0, result
    spec = submitted_spec(daemon)
    assert (spec.slice.gpus_milli, spec.slice.mem_max_bytes, spec.name, spec.hold) == (500, 8 << 30, "two words", True)
    assert (spec.environment["A"], spec.environment["B"]) == ("script", "script")
    assert list(spec.command) == [str(script), "--gpus", "3"]
    assert list(spec.slice.device_uuids) == [daemon.devices[0].uuid]


def test_the_command_line_overrides_them(vgpu: Any, daemon: Any, script: Path) -> None:
    words = ("--gpus", "1", "--name", "mine", "--env", "B=flag")
    assert vgpu("submit", *words, "--", "run.sh", host=daemon.host).code == 0
    spec = submitted_spec(daemon)
    assert (spec.slice.gpus_milli, spec.slice.mem_max_bytes, spec.name) == (1000, 8 << 30, "mine")
    assert (spec.environment["A"], spec.environment["B"]) == ("script", "flag")


def test_a_script_that_is_not_executable_is_run_by_its_interpreter(vgpu: Any, daemon: Any, script: Path) -> None:
    script.chmod(0o644)
    assert vgpu("submit", "run.sh", "a", host=daemon.host).code == 0
    assert list(submitted_spec(daemon).command) == ["/bin/bash", "-e", str(script), "a"]
    script.write_text("#VGPU --gpus 0.5\ntrue\n")
    result = vgpu("submit", "run.sh", host=daemon.host)
    assert result.code == USAGE
    assert "run.sh is not executable and begins with no #! line: add one, such as #!/bin/bash" in result.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--gpu 1", "No such option '--gpu'"),
        ("--gpus half", "'half' is not a number of GPUs"),
        ("--gpus", "Option '--gpus' requires an argument"),
        ("--gpus 1 python train.py", "'python' is not an option: after #VGPU come options of `vgpu submit`"),
        ("# half a device", "'#' is not an option"),
        ("--name 'x", "No closing quotation"),
        ("--wait", "--wait is for the command line: leave it out of the script"),
        ("--file job.toml", "--file is for the command line"),
        ("--image my/image", "--image is for the command line"),
        ("--host unix:///x", "--host is for the command line"),
        ("--cluster", "--cluster is for the command line"),
        ("--env A B", "'B' is not an option"),
        ("--env =x", "'=x' is not a variable: write NAME=VALUE"),
    ],
)
def test_a_line_that_is_refused_is_named(vgpu: Any, daemon: Any, script: Path, line: str, message: str) -> None:
    script.write_text(f"#!/bin/sh\n\n#VGPU --gpus 1\n#VGPU {line}\ntrue\n")
    result = vgpu("submit", "./run.sh", host=daemon.host)
    assert result.code == USAGE, result
    assert result.stderr.startswith("vgpu: ./run.sh line 4: ") and result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not daemon.queue.requests


@pytest.mark.parametrize("words", [("--image", "my/image"), ("-f", "job.toml")])
def test_an_image_and_a_job_file_leave_the_script_unread(
    vgpu: Any, daemon: Any, script: Path, words: tuple[str, ...]
) -> None:
    (script.parent / "job.toml").write_text("gpus = 1\n")
    script.write_text("#!/bin/sh\n#VGPU --wrong\n")
    assert vgpu("submit", "--gpus", "0.25", *words, "./run.sh", host=daemon.host).code == 0
    assert list(submitted_spec(daemon).command) == ["./run.sh"]


@pytest.mark.parametrize("content", [b"\x7fELF\n#VGPU --gpus 4\n", b"#!/bin/sh\n#\xff\ntrue\n", b""])
def test_a_program_without_such_lines_is_submitted_as_it_is(
    vgpu: Any, daemon: Any, script: Path, content: bytes
) -> None:
    script.write_bytes(content)
    assert vgpu("submit", "--gpus", "0.25", "./run.sh", host=daemon.host).code == 0
    spec = submitted_spec(daemon)
    assert (list(spec.command), spec.slice.gpus_milli) == (["./run.sh"], 250)


def test_a_program_of_path_overrides_a_file_of_its_name(
    vgpu: Any, daemon: Any, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert vgpu("submit", "--gpus", "0.25", "run.sh", host=daemon.host).code == 0
    assert (list(submitted_spec(daemon).command), submitted_spec(daemon).name) == (["run.sh"], "")


def test_a_fifo_is_not_waited_for(vgpu: Any, daemon: Any, script: Path) -> None:
    os.mkfifo(script.parent / "pipe")
    assert vgpu("submit", "--gpus", "0.25", "./pipe", host=daemon.host).code == 0
    assert list(submitted_spec(daemon).command) == ["./pipe"]
