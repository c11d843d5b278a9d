"""What of users' data others can read on the disk, and how long a job's environment is kept there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from tests.daemon.jobs.queue_node import MISSING, queue_node
from tests.daemon.node import Node, wait_until
from tests.store.test_jobs import S, job, launch
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.model import SiteLimits
from vgpud.core.queue.record import encode
from vgpud.errors import DeniedError, ExitCode, StoreError
from vgpud.host import private_files
from vgpud.jobs.messages import Attempt, Member, WireError, instructions
from vgpud.jobs.runner import Jobs
from vgpud.store import backups, environments
from vgpud.store import database as stores
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore
from vgpud.store.queue_recorder import Recorder
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: distinctive: it must be found in no file
SECRET = "sk-7f3a9c-DO-NOT-KEEP"  # noqa: S105
FILES = ("vgpud.sqlite3", "vgpud.sqlite3-wal", "vgpud.sqlite3-shm")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable_by_others(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file() and mode(p) & 0o077)


def holding(directory: Path, secret: str = SECRET) -> list[str]:
    """The files in which the secret is."""
    return sorted(p.name for p in directory.rglob("*") if p.is_file() and secret.encode() in p.read_bytes())


def secret_job(job_id: int = 1, state: JobState = JobState.PENDING, **fields: object) -> Job:
    made = job(job_id, state, **fields)
    made.spec = replace(made.spec, run=launch(environment=(("API_KEY", SECRET * 500),)))
    return made


# ---- modes ----


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_database_is_private_whatever_the_folder_and_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store = Store(tmp_path)
    assert {name: oct(mode(tmp_path / name)) for name in FILES} == dict.fromkeys(FILES, "0o600")
    store.close()


def test_a_loose_state_directory_is_closed_and_said(node: Node) -> None:
    """As docker makes the folder of a bind mount, with a database of a daemon before."""
    node.state.mkdir()
    Store(node.state).close()
    for name in ("vgpud.sqlite3", "measured.csv"):
        (node.state / name).touch()
        (node.state / name).chmod(0o644)
    node.state.chmod(0o755)
    node.start()
    assert oct(mode(node.state)) == "0o700"
    assert readable_by_others(node.state) == []
    messages = [text for text in node.messages("state.repaired") if "others could look into it" in text]
    assert [text.split(" had mode ")[0].removeprefix(str(node.state)) for text in messages] == [
        "",
        "/measured.csv",
        "/vgpud.sqlite3",
    ]
    assert f"{node.state} had mode 755" in node.log.read_text()
    node.stop()
    node.start()
    assert node.log.read_text().count("had mode") == 3, "there is nothing left to say"


def test_a_state_directory_that_others_wrote_to(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    (state / "own").touch()
    assert len(private_files.make_state_dir(state, tmp_path / "run")) == 2
    assert (mode(state), mode(state / "own")) == (0o700, 0o600)
    state.chmod(0o777)
    (state / "vgpud.sqlite3").symlink_to("/etc/passwd")
    with pytest.raises(DeniedError, match=r"vgpud.sqlite3 is a link: look at it, remove it, and run chmod 700"):
        private_files.make_state_dir(state, tmp_path / "run")


@pytest.mark.root
def test_a_state_directory_of_another_user_is_refused(node: Node) -> None:
    node.state.mkdir()
    os.chown(node.state, 65534, 65534)
    done = node.run()
    assert done.returncode == ExitCode.DENIED
    (line,) = [line for line in done.stderr.splitlines() if "state directory" in line]
    assert f"{node.state} belongs to uid 65534, not to uid 0" in line and "chown -R 0" in line


def test_the_way_to_the_runtime_directory_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "data").touch()
    private_files.make_state_dir(tmp_path, tmp_path / "run")
    assert (mode(tmp_path), mode(tmp_path / "data")) == (0o755, 0o600)


def test_a_recording_of_the_queue_is_private(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.touch(0o644)
    recorder = Recorder(str(path))
    recorder.begin((), (), SiteLimits(), (), [secret_job()])
    recorder.close()
    assert mode(path) == 0o600 and path.stat().st_size
    assert holding(tmp_path) == []


# ---- environments ----


def flush_store(store: Store) -> None:
    store.needs_flush = False
    store.flush()


def test_an_environment_goes_with_its_job_from_all_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    jobs = JobStore(store)
    jobs.save([secret_job(1), secret_job(2)])
    flush_store(store)
    assert holding(tmp_path), "a job that waits needs it"
    jobs.save([secret_job(1, JobState.RUNNING, started_ns=S, attempt=1)])
    jobs.save([secret_job(1, JobState.FAILED, started_ns=S, ended_ns=9 * S, attempt=1)])
    found = jobs.find(1)
    assert found and found.spec.run == launch(environment=())
    waits = jobs.find(2)
    assert waits and waits.spec.run.environment == (("API_KEY", SECRET * 500),)  # type: ignore[attr-defined]
    jobs.save([secret_job(2, JobState.CANCELLED, ended_ns=9 * S)])
    assert store.needs_flush, "and not only in the tables"
    flush_store(store)
    assert holding(tmp_path) == []
    store.close()
    assert holding(tmp_path) == []


def test_an_environment_in_a_backup_goes_although_the_daemon_was_killed_before_its_flush(tmp_path: Path) -> None:
    store = Store(tmp_path)
    jobs = JobStore(store)
    jobs.save([secret_job()])
    backups.back_up(store._db, tmp_path / stores.FILE_NAME, 7)
    jobs.save([secret_job(state=JobState.COMPLETED, ended_ns=2)])
    store.close()
    store = Store(tmp_path)
    flush_store(store)
    assert holding(tmp_path) == []
    store.close()


def test_a_backup_that_is_no_database_keeps_nothing_from_being_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that an admin has compressed, for example."""
    other = tmp_path / f"{stores.FILE_NAME}.backup-20200101T000000Z.gz"
    other.write_bytes(b"\x1f\x8b" * 4096)
    store = Store(tmp_path)
    jobs = JobStore(store)
    for job_id in (1, 2):
        jobs.save([secret_job(job_id)])
        backups.back_up(store._db, tmp_path / stores.FILE_NAME, 7)
        jobs.save([secret_job(job_id, JobState.COMPLETED, ended_ns=2)])
        flush_store(store)
    assert holding(tmp_path) == []
    (message,) = [record.message for record in caplog.records if str(other) in record.message]
    assert message.endswith(f"{other}: file is not a database; remove it if it holds any")
    store.close()


def test_an_array_keeps_its_environment_until_its_last_job_has_ended(tmp_path: Path) -> None:
    def member(number: int, state: JobState = JobState.PENDING) -> Job:
        made = secret_job(number, state, **({"ended_ns": 9 * S} if state.is_final else {}))
        made.spec = replace(made.spec, array=1, index=number)
        return made

    store = Store(tmp_path)
    jobs = JobStore(store)
    jobs.save([member(1), member(2), member(3)])
    jobs.save([member(1, JobState.COMPLETED)])
    jobs.save([member(3, JobState.FAILED)])
    for number, environment in ((1, ()), (2, (("API_KEY", SECRET * 500),)), (3, ())):
        found = jobs.find(number)
        assert found and found.spec.run.environment == environment, number  # type: ignore[attr-defined]
    jobs.save([member(2, JobState.COMPLETED)])
    flush_store(store)
    assert holding(tmp_path) == []


def test_environments_of_before_an_upgrade_go_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of jobs that had ended, from the tables, from what lies unused in the file, and from the backup."""
    together = []
    for name in ("forget_all_ended", "forget_in_copy"):

        def note_transaction(
            copy: sqlite3.Connection, *rest: object, work: object = getattr(environments, name)
        ) -> bool:
            together.append(copy.in_transaction)
            return bool(work(copy, *rest))  # type: ignore[operator]

        monkeypatch.setattr(environments, name, note_transaction)
    path = tmp_path / stores.FILE_NAME
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = OFF")
        for number, statements in enumerate(stores.MIGRATIONS[:7], 1):
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        for one in (secret_job(1, JobState.COMPLETED, ended_ns=5 * S), secret_job(2), secret_job(3)):
            spec, text, state = old_texts(one)
            row = (one.job_id, max(one.ended_ns, 0), 1000, "default", spec, text, state)
            columns = "id, ended, uid, queue, spec, launch, state"
            db.execute(f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
        db.execute("DELETE FROM jobs WHERE id = 3")
    assert path.read_bytes().count(SECRET.encode()) > 1000
    store = Store(tmp_path)
    (backup,) = backups.existing(path)
    assert mode(backup) == 0o600
    assert [text for text in store.notes if str(backup) in text], "its name is in the log"
    for file in (path, backup):
        assert 0 < file.read_bytes().count(SECRET.encode()) <= 500, f"{file}: only the job that waits"
    JobStore(store).save([secret_job(2, JobState.CANCELLED, ended_ns=9 * S)])
    flush_store(store)
    assert holding(tmp_path) == []
    assert together == [True, True, True], "each job by itself would wait for the disk"
    store.close()


@pytest.mark.skipif(MISSING, reason="the simulated device is not built")
def test_nothing_of_an_environment_is_left_by_a_daemon_that_runs(node: Node) -> None:
    """Neither in its state nor in its log, its recording, events, or a job's trail."""
    with queue_node(node, record_queue=f'"{node.directory}/recording"') as queue:
        queue.start()
        script = "until test -e go; do sleep 0.01; done"
        spec = queue.spec(script, 100)
        spec.environment["API_KEY"] = SECRET
        (job_id,) = queue.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec)).job_ids
        queue.until(job_id, "running")
        assert queue.get(job_id).spec.environment["API_KEY"] == SECRET, "to its owner"
        assert {name.partition("-")[0] for name in holding(node.state)} == {"vgpud.sqlite3"}
        (queue.work / "go").touch()
        ended = queue.wait_for_end(job_id)
        assert not ended.spec.environment and list(ended.spec.command) == ["sh", "-c", script]
        wait_until(lambda: not holding(node.state), "the environment gone from all files")
        with pytest.raises(grpc.RpcError) as error:
            queue.jobs.RequeueJob(pb.RequeueJobRequest(job_id=job_id))
        assert "its environment was deleted when it ended, submit it again" in error.value.details()
        answer = queue.jobs.ExplainJob(pb.ExplainJobRequest(job_id=job_id))
        events = node.events.ListEvents(pb.ListEventsRequest())
        assert SECRET not in f"{answer} {events}"
        assert holding(node.directory) == []
        assert mode(node.directory / "recording") == 0o600


def old_texts(one: Job) -> tuple[str, str, str]:
    state = {key: value for key, value in encode(one).items() if key != "spec"}
    return json.dumps(encode(one.spec)), json.dumps(encode(one.spec.run)), json.dumps(state)


def test_variables_for_an_engine_do_not_outlive_their_attempt(tmp_path: Path) -> None:
    """A daemon that was killed between writing them and starting the attempt leaves them behind."""
    directory = tmp_path / "jobs"
    directory.mkdir(0o700)
    for name in ("3.1.0.env", "3.1.1.env", "4.1.2.0.env", "5.2.0.env", "5.2.env.d"):
        (directory / name).write_text(f"API_KEY={SECRET}")

    async def adopt() -> None:
        jobs = Jobs(directory, SimpleNamespace())  # type: ignore[arg-type]
        await jobs.adopt([(5, 2)])
        jobs.close()

    asyncio.run(adopt())
    assert sorted(path.name for path in directory.glob("*.env")) == ["5.2.0.env"], "that attempt may run"


def test_a_variable_that_no_program_can_have_is_named_without_its_value() -> None:
    member = Member(("true",), {"API_KEY": f"{SECRET}\0"})
    with pytest.raises(WireError, match="env 'API_KEY' holds a zero byte") as error:
        instructions(Attempt(1, 1, 0, 0, (), "/", 0, (member,)), "/")
    assert SECRET[:10] not in str(error.value)


def test_an_error_of_the_database_tells_no_content(tmp_path: Path) -> None:
    store = Store(tmp_path)
    JobStore(store).save([secret_job()])
    text = json.dumps({"environment": SECRET})
    store.write(lambda db: db.execute("UPDATE jobs SET launch = ?", (text,)))
    with pytest.raises(StoreError, match="cannot read the state database") as error:
        JobStore(store).find(1)
    assert SECRET not in str(error.value)
