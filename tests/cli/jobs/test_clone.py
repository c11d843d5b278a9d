"""Jobs like others: `vgpu job clone`, `resubmit` and templates; nothing of a job is lost on the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.jobs import job_document
from vgpud.v1alpha1 import vgpud_pb2 as pb

USAGE, NOT_FOUND, CONFLICT = 2, 4, 8
#: an option of each kind, and what it becomes
ALL = (
    *("--gpus", "0.5", "--min", "0.25", "--max", "0.75", "--mem", "8G", "--weight", "300"),
    *("--mem-swap", "--idle-after", "10m", "--copy-max", "0.5"),
    *("--spread", "1", "--gang", "2", "--cpus", "2.5", "--ram", "1536M", "--queue", "default", "--priority", "-5"),
    *("--time-limit", "2h30m", "--signal", "USR1@5m", "--grace", "60s", "--expected", "1h", "--retries", "2"),
    *("--skew", "0.2", "--no-preempt", "--log", "/tmp/%j.txt", "--name", "night", "-C", "/tmp"),
    *("--notify", "start,failure", "--notify-mail", "ann@example.org", "--env", "A=1"),
)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FROM_SHELL", "first")


def submit(vgpu: Any, daemon: Any, *words: str) -> Any:
    """The message of a submission."""
    before = len(daemon.queue.requests)
    result = vgpu("submit", *words, host=daemon.host)
    assert result.code == 0, result
    return daemon.queue.requests[before].spec


def like(vgpu: Any, daemon: Any, *words: str) -> Any:
    """The message of the last request after a command that is carried out."""
    result = vgpu(*words, host=daemon.host)
    assert result.code == 0, result
    return daemon.queue.requests[-1].spec


@pytest.mark.parametrize(
    "words",
    [
        (*ALL, "--", "python", "train.py", 'a "b" \t\\', "\u00e9\x7f"),
        ("--gpus", "0.5", "--class", "latency", "--", "./serve"),
        ("--gpus", "0.25..1", "--", "./train"),
        ("--gpus", "0.5", "--workers", "1-8", "--heuristic", "efficiency(0.1)", "--batch", "64", "--", "./train"),
        ("--gpus", "0.5", "--workers", "2", "--utility", "linear,100,0.5,samples=5000000", "--", "./train"),
        ("--gpus", "1", "--image", "r.io/x:1", "--volume", "/d:/d:ro", "--port", "20000:80", "--registry-auth", "r"),
        ("--gpus", "1", "--mem-min", "1G", "--mem-max", "3G", "--device", "0", "--", "true"),
    ],
)
def test_a_job_again_is_the_same_message(vgpu: Any, daemon: Any, words: tuple[str, ...]) -> None:
    """By clone, by resubmit and by a template that is a file in between."""
    first = submit(vgpu, daemon, *words)
    assert like(vgpu, daemon, "job", "clone", "1") == first
    assert like(vgpu, daemon, "job", "resubmit", "1") == first
    assert (
        vgpu("job", "template", "save", "1", "t", *(["--env", "A"] if "A=1" in words else []), host=daemon.host).code
        == 0
    )
    assert like(vgpu, daemon, "submit", "--template", "t") == first


def test_changes(vgpu: Any, daemon: Any) -> None:
    first = submit(vgpu, daemon, *ALL, "--", "./train", "-v")
    changed = like(vgpu, daemon, "job", "clone", "1", "--gpus", "0.6", "--env", "A=2", "--", "./other")
    first.slice.gpus_milli, first.environment["A"], first.command[:] = 600, "2", ["./other"]
    assert changed == first


def test_the_variables_of_a_job_that_has_not_ended(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not this shell's of now."""
    submit(vgpu, daemon, "--gpus", "1", "--", "true")
    monkeypatch.setenv("FROM_SHELL", "second")
    monkeypatch.setenv("LATER", "x")
    spec = like(vgpu, daemon, "job", "clone", "1")
    assert spec.environment["FROM_SHELL"] == "first" and "LATER" not in spec.environment


def test_a_job_that_has_ended_has_no_variables_any_more(
    vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(vgpu, daemon, "--gpus", "1", "--", "true")
    daemon.queue.jobs[1].spec.environment.clear()
    daemon.queue.end(1)
    monkeypatch.setenv("FROM_SHELL", "second")
    result = vgpu("job", "resubmit", "1", host=daemon.host)
    assert (result.code, result.stdout) == (0, "2\n")
    assert "job 1 has ended, and its variables were deleted: this shell's are passed on" in result.stderr
    assert daemon.queue.requests[-1].spec.environment["FROM_SHELL"] == "second"


def test_a_job_of_another_user_is_submitted_as_ones_own(vgpu: Any, daemon: Any) -> None:
    """By an admin, also when that user is gone: variables and notifications were for that user."""
    spec = pb.JobSpec(name="x", command=["true"], directory="/tmp", slice=pb.SliceSpec(gpus_milli=100))
    spec.notification.webhook = "https://hidden"
    daemon.queue.add(1, "running", spec=spec, uid=4_000_000)
    result = vgpu("job", "clone", "1", host=daemon.host)
    assert result.code == 0 and "job 1 is uid 4000000's: its variables and notifications" in result.stderr
    sent = daemon.queue.requests[-1].spec
    assert sent.environment["FROM_SHELL"] == "first" and not sent.HasField("notification")


def test_one_of_an_array_has_its_index(vgpu: Any, daemon: Any) -> None:
    submit(vgpu, daemon, "--gpus", "0.25", "--array", "3-5", "--", "true")
    assert list(like(vgpu, daemon, "job", "clone", "2").array_indices) == [4]


def test_what_held_for_the_first_submission_alone(vgpu: Any, daemon: Any) -> None:
    daemon.queue.add(7, "completed")
    submit(vgpu, daemon, "--gpus", "1", "--after", "7", "--begin", "2h", "--hold", "--", "true")
    spec = like(vgpu, daemon, "job", "clone", "2")
    assert not spec.after and not spec.HasField("begin_time") and not spec.hold


def test_an_environment_gives_what_it_has_now(vgpu: Any, daemon: Any) -> None:
    defaults = pb.JobSpec(image="x:1", slice=pb.SliceSpec(gpus_milli=100))
    daemon.queue.environments.environments.append(pb.Environment(name="e", defaults=defaults))
    daemon.queue.add(1, "pending", spec=pb.JobSpec(environment_name="e", image="x:0", directory="/tmp", command=["a"]))
    daemon.queue.jobs[1].spec.slice.gpus_milli = 200
    spec = like(vgpu, daemon, "job", "clone", "1")
    assert (spec.environment_name, spec.image, spec.slice.gpus_milli) == ("e", "", 200)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("job", "clone"), USAGE, "name the job first"),
        (("job", "clone", "--gpus", "1"), USAGE, "name the job first"),
        (("job", "clone", "x"), USAGE, "is not a job"),
        (("job", "clone", "99"), NOT_FOUND, "no job 99"),
        (("job", "resubmit", "99"), NOT_FOUND, "no job 99"),
        (("job", "clone", "8"), CONFLICT, "job 8 is a session: `vgpu session start` starts another one"),
        (("job", "template", "save", "8", "t"), CONFLICT, "job 8 is a session"),
        (("job", "template", "save", "1", "../t"), USAGE, "'../t' is not the name of a template"),
        (("job", "template", "save", "1", "t", "--env", "NONE"), NOT_FOUND, "job 1 has no variable NONE"),
        (("job", "template", "show", "none"), NOT_FOUND, "no template 'none': `vgpu job template save JOB NAME` makes"),
        (("job", "template", "rm", "none"), NOT_FOUND, "no template 'none'"),
        (("submit", "--template", "none"), NOT_FOUND, "no template 'none'"),
        (("submit", "--template", "a/b"), USAGE, "is not the name of a template"),
    ],
)
def test_refusals(vgpu: Any, daemon: Any, words: tuple[str, ...], code: int, why: str) -> None:
    daemon.queue.add(1)
    daemon.queue.add(8, spec=pb.JobSpec(session="jupyter", command=["x"], directory="/"))
    result = vgpu(*words, host=daemon.host)
    assert (result.code, result.stderr.count("\n")) == (code, 1), result
    assert why in result.stderr and not daemon.queue.requests


def test_a_refusal_does_not_keep_the_others(vgpu: Any, daemon: Any) -> None:
    submit(vgpu, daemon, "--gpus", "1", "--", "true")
    result = vgpu("job", "resubmit", "99", "1", host=daemon.host)
    assert (result.code, result.stdout) == (NOT_FOUND, "2\n")
    assert "job 99: no job 99" in result.stderr


def test_templates_are_the_users_alone(vgpu: Any, daemon: Any) -> None:
    """Without variables, which may be passwords, and in files that only the user reads."""
    submit(vgpu, daemon, "--gpus", "0.5", "--env", "PASSWORD=secret", "--name", "t", "--", "./train")
    assert vgpu("job", "template", "save", "1", "night", host=daemon.host).code == 0
    path = paths.templates_dir() / "night.toml"
    assert "secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again = vgpu("job", "template", "save", "1", "night", host=daemon.host)
    assert again.code == CONFLICT and "replace it by --force" in again.stderr
    assert vgpu("job", "template", "save", "1", "night", "--force", host=daemon.host).code == 0
    rows = vgpu("job", "template", "ls").stdout.splitlines()
    assert [row.split() for row in rows] == [["TEMPLATE", "GPUS", "RUNS"], ["night", "0.5", "./train"]]
    assert vgpu("job", "template", "show", "night").stdout == path.read_text()
    assert vgpu("job", "template", "rm", "night").code == 0 and not path.exists()
    assert vgpu("job", "template", "ls").stdout.splitlines() == ["TEMPLATE  GPUS  RUNS"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpus = 0.5\nname = ", "is not TOML"),
        ("gpu = 0.5\n", "line 1: there is no key 'gpu': did you mean 'gpus'?"),
        ('gpus = "much"\n', "line 1: gpus: 'much' is not a number of GPUs"),
        ("a" * 300 + " = 1\n", "256 is the limit"),
    ],
)
def test_a_damaged_template(vgpu: Any, daemon: Any, text: str, why: str) -> None:
    """Named with its line, listed as damaged, left as it is; nothing is queued."""
    folder = paths.templates_dir()
    folder.mkdir(parents=True)
    (folder / "t.toml").write_text(text)
    (folder / "fine.toml").write_text('gpus = 1\ncommand = ["true"]\n')
    result = vgpu("submit", "--template", "t", host=daemon.host)
    assert result.code == USAGE and why in result.stderr and str(folder / "t.toml") in result.stderr
    assert not daemon.queue.requests and (folder / "t.toml").read_text() == text
    listed = vgpu("job", "template", "ls", "-o", "json").json["templates"]
    assert [one["name"] for one in listed] == ["fine", "t"] and listed[0]["problem"] is None
    assert ("is not TOML" in why or "limit" in why) == bool(listed[1]["problem"])


def test_a_template_that_asks_for_more_than_its_user_may_have(vgpu: Any, daemon: Any) -> None:
    folder = paths.templates_dir()
    folder.mkdir(parents=True)
    (folder / "big.toml").write_text('gpus = 9\ncommand = ["true"]\n')
    result = vgpu("submit", "--template", "big", host=daemon.host)
    assert result.code == 6 and result.stderr.startswith("vgpu: template big: a gang of 1 is more than the cluster has")
    assert vgpu("submit", "--template", "big", "--gpus", "1", host=daemon.host).code == 0


def test_a_template_and_a_file(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    folder = paths.templates_dir()
    folder.mkdir(parents=True)
    for path in (folder / "t.toml", tmp_path / "job.toml"):
        path.write_text('gpus = 1\ncommand = ["true"]\n')
    result = vgpu("submit", "-f", str(tmp_path / "job.toml"), "--template", "t", host=daemon.host)
    assert result.code == USAGE and "leave one out" in result.stderr


def test_the_token_of_a_session_is_no_variable() -> None:
    job = pb.Job(spec=pb.JobSpec(environment={"VGPU_SESSION_TOKEN": "secret", "A": "1"}))
    assert job_document.variables_of(job) == {"A": "1"}


def test_umask_of_the_shell(vgpu: Any, daemon: Any) -> None:
    """It is the new submission's own, as its help says."""
    mask = os.umask(0o027)
    try:
        assert submit(vgpu, daemon, "--gpus", "1", "--", "true").umask == 0o027
    finally:
        os.umask(mask)
    assert like(vgpu, daemon, "job", "clone", "1").umask == mask
