"""Two users of one node: nothing of the one's is readable by the other on disk, by API, in /proc or in logs.

Alice has a job, a job in an image and a slice; Bob is another user with the same rights. What Alice's own programs have
on their command lines is left out: the kernel shows every user the command lines of all (docs/security/jobs.md).
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory

from tests.api.asker import Asker
from tests.attach import client
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .outsider import content, files_below, look

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]

ALICE, BOB = 64201, 64202
JOBS = "/vgpud.v1alpha1.JobService/"
#: it holds still in `run`; what it is asked to remove is never there
ENGINE = '#!/bin/sh\n[ "$1" != run ] || exec sleep 600\n'
READS = ("Get", "List", "Watch", "Explain")
RPCS = {
    f"/{service.full_name}/{method.name}": method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name.startswith(READS)
}


class Site:
    """A daemon, and what Alice has there."""

    def __init__(self, system: OwnSystem, home: Path) -> None:
        self.system, self.home = system, home
        self.secrets = {what: f"{what}-{uuid.uuid4().hex}" for what in ("environment", "command", "name")}
        self.alice, self.bob = (Asker(system.host, f"{uid}:{uid}") for uid in (ALICE, BOB))
        self.slice_name = f"s-{self.secrets['name'][-12:]}"
        self.hidden_values = {**self.secrets, "slice": self.slice_name}
        self.job_ids = [self.submit(), self.submit(image="registry.invalid/alice")]
        self.client_program = self._attach()

    @property
    def folders(self) -> list[Path]:
        """All that the daemon, its helpers and Alice's job write."""
        return [self.system.folder, self.home]

    def submit(self, image: str = "") -> int:
        """Alice's job, running. Without an image it prints its secret into its log."""
        script = 'echo "$0"; exec sleep 600'
        spec = pb.JobSpec(
            slice=pb.SliceSpec(gpus_milli=100),
            name=self.secrets["name"],
            command=["sleep", "600"] if image else ["sh", "-c", script, self.secrets["command"]],
            image=image,
            directory=str(self.home),
            environment={"PATH": "/usr/bin:/bin", "API_KEY": self.secrets["environment"]},
            umask=0o077,
        )
        request = pb.SubmitJobRequest(request_id=str(uuid.uuid4()), spec=spec)
        code, message, raw = self.alice.ask(JOBS + "SubmitJob", "unary_unary", request)
        assert code == "OK", message
        (job_id,) = pb.SubmitJobResponse.FromString(raw).job_ids
        wait_for(f"job {job_id} ({self.job(job_id).reason})", lambda: self.job(job_id).state == pb.JOB_STATE_RUNNING)
        return job_id

    def job(self, job_id: int) -> pb.Job:
        """As Alice sees it."""
        code, message, raw = self.alice.ask(JOBS + "GetJob", "unary_unary", pb.GetJobRequest(job_id=job_id))
        assert code == "OK", message
        return pb.GetJobResponse.FromString(raw).job

    def _attach(self) -> Part:
        """A program of Alice's in a slice of hers."""
        request = pb.CreateSliceRequest(
            request_id=str(uuid.uuid4()), name=self.slice_name, spec=pb.SliceSpec(gpus_milli=100)
        )
        code, message, raw = self.alice.ask("/vgpud.v1alpha1.SliceService/CreateSlice", "unary_unary", request)
        assert code == "OK", message
        socket = pb.CreateSliceResponse.FromString(raw).slice.attach_socket
        env = {**self.system.env, "AS": f"{ALICE}:{ALICE}", "API_KEY": self.secrets["environment"]}
        part = Part("attached", [sys.executable, client.__file__, socket], env, self.system.folder)
        self.system.tenants.append(part)
        wait_for("the attached program", lambda: part.output_file.read_text() == f"{client.OK}\n")
        return part

    def close(self) -> None:
        self.alice.close()
        self.bob.close()


def _state_folders(modes: dict[str, int | None]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", modes.values(), ids=modes.keys(), indirect=True, scope="module")


#: mode of a state folder that exists before the daemon starts: docker creates missing mount points with 0755
NEW: dict[str, int | None] = {"new state folder": None}
in_a_new_folder = _state_folders(NEW)
in_any_folder = _state_folders({**NEW, "state folder of mode 0755": 0o755})


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="vg2-", dir="/tmp"))
    home = Path(tempfile.mkdtemp(prefix="vg2-home-", dir="/tmp"))
    try:
        folder.chmod(0o755)  # as /run and /var/lib are
        home.chmod(0o755)
        os.chown(home, ALICE, ALICE)
        if request.param:
            (folder / "state").mkdir()
            (folder / "state").chmod(request.param)
        engine = folder / "engine"
        engine.write_text(ENGINE)
        engine.chmod(0o755)
        config = ['socket_mode = "0666"', "job_grace_s = 1", "[jobs]", f'engine = "{engine}"']
        with OwnSystem(folder, {"devices": "1"}, config) as system:
            made = Site(system, home)
            yield made
            made.close()
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(home)


@in_any_folder
def test_bob_reads_nothing_on_disk_or_in_proc(site: Site) -> None:
    log = Path(site.job(site.job_ids[0]).log)
    wait_for("the job's output", lambda: site.secrets["command"] in log.read_text())
    opened, found = look(BOB, site.folders, site.secrets)
    assert opened > 20, "Bob found hardly anything to open: this looked in the wrong place"
    assert not found


@in_a_new_folder
def test_alice_finds_her_own_secrets(site: Site) -> None:
    """The same look by a user who may read it: the one above can fail."""
    _opened, found = look(ALICE, site.folders, site.secrets)
    assert {name for _place, name in found} >= {"environment", "command"}


def _requests(site: Site, path: str) -> list[Any]:
    """Requests for what is Alice's, and for all there is."""
    kind = message_factory.GetMessageClass(RPCS[path].input_type)
    fields = {"name": site.slice_name, "slice": site.slice_name, "all": True, "by": pb.USAGE_BY_JOB, "page_size": 500}
    known = {name: value for name, value in fields.items() if name in kind.DESCRIPTOR.fields_by_name}
    if "job_id" in kind.DESCRIPTOR.fields_by_name:
        return [kind(**known, job_id=job_id) for job_id in site.job_ids]
    if "job_ids" in kind.DESCRIPTOR.fields_by_name:
        return [kind(**known), kind(**known, job_ids=site.job_ids)]
    everything = {name: value for name, value in known.items() if name != "slice"}
    return [kind(**known)] if known == everything else [kind(**known), kind(**everything)]


def _answers(site: Site, who: Asker, path: str) -> list[tuple[str, str, bytes]]:
    """Of a stream the first; one that has nothing to say to this user says so by its silence."""
    kind, deadline_s = ("unary_stream", 0.5) if RPCS[path].server_streaming else ("unary_unary", 30.0)
    return [who.ask(path, kind, request, deadline_s) for request in _requests(site, path)]


@in_a_new_folder
@pytest.mark.parametrize("path", RPCS, ids=[path.rpartition("/")[2] for path in RPCS])
def test_bob_learns_nothing_from_the_api(site: Site, path: str) -> None:
    for code, message, raw in _answers(site, site.bob, path):
        leaks = [what for what, secret in site.hidden_values.items() if secret in message or secret.encode() in raw]
        # what Bob has asked for by its name may be in the refusal
        assert [what for what in leaks if what != "slice" or code == "OK"] == [], (code, message)


@in_a_new_folder
def test_alice_learns_what_is_hers(site: Site) -> None:
    """The same requests: Bob's could have been answered."""
    raw_answers = b"".join(raw for path in RPCS for _code, _message, raw in _answers(site, site.alice, path))
    assert [what for what, secret in site.hidden_values.items() if secret.encode() not in raw_answers] == []


@in_a_new_folder
def test_environments_are_in_no_event_and_no_log_of_the_daemon(site: Site) -> None:
    with site.system.client() as admin:
        events = "\n".join(event.message for event in admin.all(calls.events()))
    assert "job" in events
    assert site.secrets["environment"] not in events
    logs = "\n".join(path.read_text(errors="replace") for path in site.system.folder.glob("*.log"))
    assert site.secrets["environment"] not in logs and site.secrets["command"] not in logs


@in_any_folder
def test_files_of_the_state_folder_are_the_daemons_alone(site: Site) -> None:
    paths = list(files_below(str(site.system.folder / "state")))
    assert paths
    assert [path for path in paths if stat.S_IMODE(os.stat(path).st_mode) & 0o077] == []


@in_any_folder
def test_environments_are_gone_when_the_jobs_have_ended(site: Site) -> None:
    """Last: it ends Alice's jobs. Root looks, into every byte that the daemon has written."""
    assert _holding(site), "no file has the environment of a running job: this looked in the wrong place"
    for job_id in site.job_ids:
        request = pb.CancelJobRequest(job_id=job_id)
        assert site.alice.ask(JOBS + "CancelJob", "unary_unary", request)[0] == "OK"
    wait_until(lambda: all(site.job(job_id).state == pb.JOB_STATE_CANCELLED for job_id in site.job_ids))
    wait_until(lambda: not _holding(site), lambda: f"still in {_holding(site)}")


def _holding(site: Site) -> list[str]:
    secret = site.secrets["environment"].encode()
    return [path for path in files_below(str(site.system.folder)) if secret in (content(path) or b"")]


def wait_until(look: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)
