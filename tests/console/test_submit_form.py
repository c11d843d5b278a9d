"""The form of a job: all that the command line can ask for, and the way back from a job."""

from __future__ import annotations

import os
import pwd

import click
import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon, uuid_of
from vgpud.cli.jobs.submit import submit
from vgpud.console.login.client import User
from vgpud.console.pages.submit_form import form_of, spec_of
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import Post, text_of
from .test_pages import GIB, add_job

USER = User(os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name, "", "", "")
#: options of `vgpu submit` -> fields of the form, where they have other names
FIELDS = {
    "min_milli": "min",
    "max_milli": "max",
    "service_class": "class",
    "env": "environment",
    "devices": "device:",
    "registry_auth": "registry",
    "idle_after_ns": "idle_after",
    "copy_max_milli": "copy_max",
    "after_ok": "after",  # the same as --after
    "predict": "model",
    "dims": "model_batch",  # the form asks for the batch, which is the usual one
}
#: options that are about the terminal of the command line, its environment, or a Slurm cluster
NOT_HERE = {
    *("wait", "quiet", "detach_keys", "request_id", "no_env", "over_cluster", "run_dir", "partition", "gpu_model"),
    *("template", "environment"),  # of the site: there if it has some, see test_submit_environments.py
    *(
        "dry_run",
        "predictor",
        "predict_run",
        "command",
        "output",
        "host",
        "timeout",
        "help",
        "color",
        "timeout_s",
        "headers",
        "file",
    ),
}
FULL = {
    "command": "python 'my train.py' --lr 0.1",
    "gpus": "0.5",
    "min": "0.25",
    "max": "1",
    "mem_min": "4G",
    "mem_max": "8G",
    "weight": "3",
    "spread": "1",
    "class": "latency",
    "gang": "4",
    "cpus": "2.5",
    "ram": "16G",
    "skew": "0.5",
    "name": "net",
    "queue": "research",
    "log": "out-%j.log",
    "priority": "-5",
    "retries": "2",
    "time_limit": "2h30m",
    "expected": "1h",
    "begin": "2096-01-02T03:04:00Z",
    "signal": "USR1@5m",
    "grace": "90s",
    "no_preempt": "yes",
    "environment": "A=1\nB=two words",
    "notify_end": "yes",
    "notify_failure": "yes",
    "notify_mail": "ann@example.org",
    "notify_command": "/bin/echo 'it ended'",
    "directory": "/data/work",
    f"device:{uuid_of(0)}": "yes",
}


def test_the_form_has_all_options_of_the_command_line(alice: TestClient) -> None:
    html = alice.get("/submit").text
    options = {option.name or "" for option in submit.params if isinstance(option, click.Option)}
    for name in sorted(options - NOT_HERE):
        field = FIELDS.get(name, name)
        has = f'name="{field}"' in html or f'name="{field}_start"' in html or f'name="{field}{uuid_of(0)}"' in html
        assert has, name


@pytest.mark.parametrize(
    "form",
    [
        {"command": "true", "gpus": "1"},
        {"command": "for i in 1 2; do echo $i; done", "shell": "yes", "gpus": "0.25..1", "pty": "yes"},
        {"command": "./train", "gpus": "1", "workers": "1-8", "heuristic": "efficiency(0.2)", "batch": "64"},
        {"command": "./train", "gpus": "1", "workers": "2-4", "utility": "linear,100,0.5,samples=5000000"},
        {"command": "./a", "gpus": "0.5", "mem_swap": "yes", "idle_after": "10m", "copy_max": "0.25"},
        {"command": "./a", "gpus": "0.5", "idle_after": "0s"},
        {"command": "", "image": "my/image:1", "gpus": "0.5", "mem": "8G", "environment": "PATH=/opt/bin"},
        FULL,
    ],
)
def test_a_job_that_is_cloned_is_the_same_job(form: dict[str, str]) -> None:
    spec = spec_of(form, USER)
    copy = spec_of(form_of(pb.Job(spec=spec), USER), USER)
    assert copy == spec


def test_every_field_arrives() -> None:
    spec = spec_of(FULL, USER)
    share = spec.slice
    assert (share.gpus_milli, share.min_milli, share.max_milli) == (500, 250, 1000)
    assert (share.mem_min_bytes, share.mem_max_bytes) == (4 * GIB, 8 * GIB)
    assert (share.weight, share.spread, share.service_class) == (3, 1, pb.SERVICE_CLASS_LATENCY)
    assert list(share.device_uuids) == [uuid_of(0)]
    assert (spec.members, spec.cpu_milli, spec.ram_bytes, spec.skew) == (4, 2500, 16 * GIB, 0.5)
    assert (spec.priority, spec.retries, spec.not_preemptible) == (-5, 2, True)
    assert (spec.signal, spec.signal_lead.seconds, spec.grace.seconds) == ("USR1", 300, 90)
    assert (spec.log, spec.directory, spec.umask) == ("out-%j.log", "/data/work", 0o022)
    assert list(spec.notification.events) == [pb.NOTIFICATION_EVENT_END, pb.NOTIFICATION_EVENT_FAILURE]


def test_jobs_to_wait_for() -> None:
    form = {"command": "true", "gpus": "1", "after": "3,5-6", "after_fail": "7", "after_any": "8"}
    spec = spec_of(form, USER)
    assert (list(spec.after), list(spec.after_fail), list(spec.after_end)) == ([3, 5, 6], [7], [8])
    assert not {"after", "after_fail", "after_any"} & set(form_of(pb.Job(spec=spec), USER)), "they may be gone"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"gpus": ""}, "gpus: write a size"),
        ({"gpus": "0.25..1", "gang": "2"}, "already sets the share"),
        ({"workers": "1-8", "image": "x"}, "run them without --image"),
        ({"signal": "USR1@5m"}, "sent before the time limit"),
        ({"signal": "USR9@5m", "time_limit": "1h"}, "signal: 'USR9@5m' names no signal"),
        ({"after": "3", "after_any": "3"}, "job 3 is to be waited for in several ways"),
        ({"heuristic": "x"}, "refines --workers"),
        ({"min": "0.9"}, "--min 0.9 is more than --gpus 0.5"),
        ({"notify_end": "yes"}, "notify: write where the news goes"),
    ],
)
def test_a_wrong_form_is_one_sentence(fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError) as found:  # noqa: PT011
        spec_of({"command": "true", "gpus": "0.5", **fields}, USER)
    assert sentence in str(found.value)


def test_clone_fills_in_the_form(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "completed", name="net", retries=3, command=["/bin/sh", "-c", "echo <hello>"])
    html = alice.get("/submit?like=7").text
    assert "like job 7" in text_of(html)
    assert ">echo &lt;hello&gt;</textarea>" in html
    assert 'name="name" value="net"' in html and 'name="retries" value="3"' in html
    assert 'name="shell" value="yes" checked' in html
    assert "<details open>" in html, "what is set is in sight"


def test_a_job_that_may_not_be_seen_is_not_cloned(alice: TestClient, daemon: FakeDaemon) -> None:
    answer = alice.get("/submit?like=99")
    assert answer.status_code == 403 and "99" in text_of(answer.text)
    for number in ("x", "-1", "9" * 30):
        assert 'name="gpus" value="0.5"' in alice.get(f"/submit?like={number}").text


def test_a_session_is_started_by_its_own_command(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "running", session="jupyter")
    assert "vgpu session start" in alice.get("/submit?like=7").text


def test_a_cloned_job_is_a_new_request(alice: TestClient, daemon: FakeDaemon, post: Post) -> None:
    add_job(daemon, 7, "completed")
    first, second = (alice.get("/submit?like=7").text.split('name="request_id" value="')[1][:36] for _ in range(2))
    assert first != second
