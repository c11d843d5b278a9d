"""Databases with damaged rows, pages and logs: the daemon starts with the rest, says what is lost, and never hangs."""

from __future__ import annotations

import contextlib
import errno
import json
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.attach import client
from tests.daemon.node import Node
from tests.daemon.test_shells import entry, make_slice
from tests.store.test_jobs import S, job
from tests.store.test_private_state import SECRET, holding, mode, secret_job
from vgpud.core.checksums import seal, unseal
from vgpud.core.events import SaveContainer, SaveDrain, SaveRequest, SaveSlice
from vgpud.core.jobs.facts import JobFilter, Launch, Predicted
from vgpud.core.jobs.model import JobState, QueueSpec
from vgpud.core.model import Container, Drain, Remembered
from vgpud.errors import StoreError
from vgpud.store import backups
from vgpud.store import database as stores
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore, Request
from vgpud.store.sqlite_errors import Fault, fault_of

DRAIN = Drain("GPU-0", "old", False)
CONTAINER = Container("c" * 64, "a", False, 5, 6, "/c", 7)


def fill_state(directory: Path) -> None:
    """A database with something in every table that matters."""
    store = Store(directory)
    slices = [SaveSlice(make_slice(name)) for name in "abcd"]
    store.apply(
        [*slices, SaveContainer(CONTAINER), SaveDrain(DRAIN), SaveRequest("r", Remembered("f", make_slice(), 0))]
    )
    store.append_events([entry(number) for number in range(1, 40)], 100)
    jobs = JobStore(store)
    jobs.save([job(n) for n in range(1, 9)], [Request(1000, "r", "f", (1, 2), 5)], next_id=20)
    jobs.save([job(n, JobState.FAILED, ended_ns=9 * S) for n in range(1, 5)])
    jobs.save_queue(QueueSpec("team", limit_milli=1500), ("uid:1000",))
    jobs.save_orders({"team": {"policy": "2d-gittins"}}, 9 * S)
    store.close()


def contents(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """All that is read from a database, and what is reported of its opening."""
    store = Store(directory)
    notes = list(store.notes)
    loaded, kept = store.load(100), JobStore(store).load()
    ended = JobStore(store).ended_after(0, 100, JobFilter(has_ended_jobs=True))
    store.close()
    found: dict[str, Any] = {
        "slices": loaded.slices,
        "requests": loaded.requests,
        "containers": loaded.containers,
        "drains": loaded.drains,
        "jobs": [repr({n: getattr(one, n) for n in one.__slots__}) for one in (*kept.jobs, *ended)],
        "queues": kept.queues,
        "orders": kept.orders,
        "next": kept.next_id,
    }
    return found, notes


def database(directory: Path) -> sqlite3.Connection:
    return sqlite3.connect(directory / stores.FILE_NAME, isolation_level=None)


def change(directory: Path, statement: str, *values: object) -> None:
    with contextlib.closing(database(directory)) as db:
        db.execute(statement, values)


def rewritten(text: str, **fields: Any) -> str:
    """A slice's text with other numbers, as a hand or an older version would have written it: without a checksum."""
    body = unseal(text)
    body["shares"][0] |= {name: value for name, value in fields.items() if name in body["shares"][0]}
    return json.dumps(body | {name: value for name, value in fields.items() if name in body})


# ---- single rows ----

BAD_SLICES: dict[str, tuple[Callable[[str], object], str]] = {
    "negative": (lambda text: rewritten(text, min_milli=-5), "min_milli is -5, which is below its minimum"),
    "above a device": (lambda text: rewritten(text, max_milli=1001), "250 to 1001 thousandths"),
    "10^20": (lambda text: rewritten(text, mem_max_bytes=10**20), "100000000000000000000, which is above its maximum"),
    "minimum above maximum": (lambda text: rewritten(text, mem_min_bytes=1 << 40), "bytes"),
    "negative time": (lambda text: rewritten(text, created_wall_ns=-1), "created_wall_ns is -1"),
    "not UTF-8": (lambda text: text[:20].encode() + b"\xff\xfe" + text[22:].encode(), "is not UTF-8"),
    "no JSON": (lambda text: text[:-9], "it is not JSON"),
    "deep JSON": (lambda _text: "[" * 100_000, "it is nested too deeply"),
    "a list": (lambda _text: "[]", "it is not a JSON object"),
    "wrong types": (lambda text: rewritten(text, revision="yes"), "it is not a Slice of this version"),
    "NULLs": (lambda text: rewritten(text, name=None), "it is not a Slice of this version"),
    "a number": (lambda _text: 5, "it is not a JSON object"),  # which the column makes a text
    "a blob": (lambda _text: b"\x00\x01", "body is blob, not text"),
    "a field too many": (lambda text: text[:1] + '"extra": 1, ' + text[1:], "checksum"),
    "another's name": (lambda text: rewritten(text, name="a"), "it is not a Slice of this version"),
    "a name that is a path": (
        lambda text: rewritten(text, name="../../etc", origin={"kind": "User", "name": "../../etc"}),
        "name is not a slice name",
    ),
    "one digit": (lambda text: text.replace('"min_milli": 250', '"min_milli": 240'), "checksum does not match"),
}


@pytest.mark.parametrize("case", BAD_SLICES)
def test_one_bad_row_is_set_aside(tmp_path: Path, case: str) -> None:
    fill_state(tmp_path)
    damage, why = BAD_SLICES[case]
    with contextlib.closing(database(tmp_path)) as db:
        (text,) = db.execute("SELECT body FROM slices WHERE name = 'b'").fetchone()
        value = damage(text)
        cast = "CAST(? AS TEXT)" if case == "not UTF-8" else "?"
        db.execute(f"UPDATE slices SET body = {cast} WHERE name = 'b'", (value,))  # noqa: S608
    found, notes = contents(tmp_path)
    assert [one.name for one in found["slices"]] == ["a", "c", "d"]
    (line,) = notes
    assert line.startswith("slice 'b' was set aside in table quarantine: ") and why in line and "\n" not in line
    with contextlib.closing(database(tmp_path)) as db:
        ((source, content),) = db.execute("SELECT source, content FROM quarantine").fetchall()
    assert source == "slices" and json.loads(content)["uid"] == "uid-b"
    assert contents(tmp_path)[1] == [], "once"


@pytest.mark.parametrize("is_sealed", [True, False], ids=["of this version", "of an older one"])
def test_a_waiting_job_with_a_prediction_is_believed(tmp_path: Path, is_sealed: bool) -> None:
    """Features of a model are whatever numbers its submitter has computed."""
    features = (("bytes", 1e300), ("log_steps", -1.5))
    plain = secret_job(1)
    assert isinstance(plain.spec.run, Launch)
    predicted = Predicted("m", "d", (0.5, 0.1, 1.0), (0.5, 0.1, 1.0), (5e9, 0.0, 1e10), features=features)
    run = replace(plain.spec.run, prediction=predicted)
    plain.spec = replace(plain.spec, run=run)
    store = Store(tmp_path)
    JobStore(store).save([plain])
    store.close()
    if not is_sealed:
        with contextlib.closing(database(tmp_path)) as db:
            (text,) = db.execute("SELECT launch FROM jobs").fetchone()
            db.execute("UPDATE jobs SET launch = ?", (json.dumps(unseal(text)),))
    found, notes = contents(tmp_path)
    assert notes == []
    assert repr(features) in found["jobs"][0]


USAGE = "INSERT INTO usage VALUES"
BAD_ROWS = {
    "a job's state": ("UPDATE jobs SET state = '{' WHERE id = 6", "job 6"),
    "a job's time": ("UPDATE jobs SET state = json_set(state, '$.submitted_ns', -7) WHERE id = 6", "job 6"),
    "a job's column": ("UPDATE jobs SET ended = 7 WHERE id = 6", "job 6"),
    "a job's type": ("UPDATE jobs SET spec = x'00' WHERE id = 6", "job 6"),
    "what a job runs": ("UPDATE jobs SET launch = substr(launch, 1, 50) WHERE id = 6", "job 6"),
    "a job that has ended": ("UPDATE jobs SET spec = replace(spec, '500', '400') WHERE id = 2", "job 2"),
    "JSON of one that has ended": ("UPDATE jobs SET state = 'x' WHERE id = 2", "job 2"),
    "a queue's limit": ("UPDATE queues SET spec = replace(spec, '1500', '2500')", "queue 'team'"),
    "what an order has learnt": (
        "UPDATE queue_orders SET body = replace(body, 'git', 'got')",
        "what was learnt of jobs by queue 'team'",
    ),
    "a queue's members": ("UPDATE queues SET members = '[\"uid:0\"]'", "queue 'team'"),
    "a drain": ("UPDATE drains SET device = 'GPU-1'", "the drain of device 'GPU-1'"),
    "a container": ("UPDATE containers SET id = 'x'", "container 'x'"),
    "a request": ("UPDATE requests SET fingerprint = 'g'", "a row of requests"),
    "a submission": ("UPDATE job_requests SET job_ids = '[1, 3]'", "a row of job_requests"),
    "an event": ("UPDATE events SET message = 5 WHERE sequence = 3", None),
    "an event's time": ("UPDATE events SET wall_ns = 'x' WHERE sequence = 3", "a row of events"),
    "usage": (f"{USAGE} ('u', 9, 5, 's', 0, 'q', 0, 1, 1, 1, '', '', 0, 0)", "a row of usage"),
    "negative usage": (f"{USAGE} ('u', 5, 9, 's', 0, 'q', 0, 1, -1, 1, '', '', 0, 0)", "a row of usage"),
    "negative copies": (f"{USAGE} ('u', 5, 9, 's', 0, 'q', 0, 1, 1, 1, '', '', 0, -1)", "a row of usage"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_of_every_table(tmp_path: Path, case: str) -> None:
    fill_state(tmp_path)
    whole, _ = contents(tmp_path)
    statement, who = BAD_ROWS[case]
    change(tmp_path, statement)
    found, notes = contents(tmp_path)
    assert [line.partition(" was set aside")[0] for line in notes] == ([who] if who else [])
    for table, rows in whole.items():
        assert rows == found[table] or (notes and len(rows) == len(found[table]) + 1), table
    assert contents(tmp_path) == (found, [])


def test_a_job_id_is_never_given_twice(tmp_path: Path) -> None:
    fill_state(tmp_path)
    change(tmp_path, "UPDATE job_ids SET next = 3")
    assert contents(tmp_path)[0]["next"] == 9
    change(tmp_path, "DELETE FROM job_ids")
    assert contents(tmp_path)[0]["next"] == 9


def test_no_environment_is_quarantined(tmp_path: Path) -> None:
    store = Store(tmp_path)
    JobStore(store).save([secret_job(1), secret_job(2)])
    store.close()
    change(tmp_path, "UPDATE jobs SET state = '{' WHERE id = 1")
    change(tmp_path, "UPDATE jobs SET launch = substr(launch, 1, length(launch) - 9) WHERE id = 2")
    store = Store(tmp_path)
    assert [line.split(" was")[0] for line in store.notes] == ["job 1", "job 2"]
    assert SECRET not in str(store.notes)
    rows = store.read(lambda db: [json.loads(row[0]) for row in db.execute("SELECT content FROM quarantine")])
    assert json.loads(rows[0]["launch"])["command"] and "are not kept" in rows[1]["launch"]
    store.erase()
    store.flush()
    store.close()
    assert holding(tmp_path) == []


def test_an_array_outlives_its_first_row(tmp_path: Path) -> None:
    def member(number: int) -> Any:
        one = secret_job(number)
        one.spec = replace(one.spec, array=1, index=number)
        return one

    store = Store(tmp_path)
    JobStore(store).save([member(n) for n in (1, 2, 3)])
    store.close()
    change(tmp_path, "UPDATE jobs SET state = '{' WHERE id = 1")
    store = Store(tmp_path)
    assert [(one.job_id, one.spec.run) for one in JobStore(store).load().jobs] == [
        (n, member(n).spec.run) for n in (2, 3)
    ]
    store.close()
    change(tmp_path, "UPDATE jobs SET launch = 'x' WHERE id = 2")
    store = Store(tmp_path)
    assert JobStore(store).load().jobs == ()
    assert [line.split(" was")[0] for line in store.notes] == ["job 2", "job 3"]
    store.close()


def test_an_array_whose_first_row_was_never_written_was_not_submitted(tmp_path: Path) -> None:
    """It is the last that is written: a daemon was killed before."""

    def member(number: int, state: JobState = JobState.PENDING) -> Any:
        one = secret_job(number, state)
        one.spec = replace(one.spec, array=3, index=number)
        return one

    store = Store(tmp_path)
    JobStore(store).save([secret_job(1), secret_job(2), member(4), member(5), member(6, JobState.CANCELLED)])
    store.close()
    store = Store(tmp_path)
    assert store.notes == ["3 jobs of an array that had not been submitted as a whole were removed"]
    jobs = JobStore(store)
    assert [one.job_id for one in jobs.load().jobs] == [1, 2] and jobs.find(6) is None
    store.close()


def test_a_daemon_starts_with_the_rest(node: Node) -> None:
    """And no user gets into what was set aside without limits."""
    node.start()
    for name in "abc":
        node.create(name, 300)
    node.stop(signal.SIGKILL)
    with contextlib.closing(database(node.state)) as db:
        bodies = dict(db.execute("SELECT name, body FROM slices").fetchall())
        db.execute("UPDATE slices SET body = ? WHERE name = 'a'", (rewritten(bodies["a"], min_milli=-5),))
        for name in "bc":  # two of .9 on one device, each of which makes sense
            text = seal(json.loads(rewritten(bodies[name], min_milli=900, max_milli=900)))
            db.execute("UPDATE slices SET body = ? WHERE name = ?", (text, name))
    node.start()
    assert node.names() == ["b", "c"]
    (message,) = node.messages("state.repaired")
    assert message == "slice 'a' was set aside in table quarantine: min_milli is -5, which is below its minimum"
    assert message in node.log.read_text()
    assert client.attach(node.socket("b")).status == client.OK
    for name, kind, why in (("a", "slice.lost", "no slice 'a'"), ("c", "slice.waiting", "slice c is waiting")):
        assert name in [slice_name for found, slice_name in node.event_kinds_and_slices() if found == kind]
        refused = client.attach(node.socket(name))
        assert refused.status != client.OK and why in refused.text, "a program without limits"
    node.stop(signal.SIGKILL)
    node.start()
    assert node.create("a", 50).name == "a", "it can be made again, and served"
    assert client.attach(node.socket("a")).status == client.OK
    assert "Traceback" not in node.log.read_text()


# ---- pages and logs ----


def flip_bit(path: Path, seed: int) -> int:
    """Flips one bit at a place that the seed gives; where."""
    raw = bytearray(path.read_bytes())
    draw = random.Random(seed)
    at = draw.randrange(len(raw))
    raw[at] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)
    return at


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("sound")
    fill_state(directory)
    return directory, contents(directory)[0]


def read_or_refused(state: Path) -> tuple[dict[str, Any] | None, list[str]]:
    try:
        return contents(state)
    except StoreError as error:
        return None, [str(error)]


@pytest.mark.parametrize("batch", range(10))
def test_a_flipped_bit_is_never_silently_wrong(tmp_path: Path, sound: tuple[Path, dict[str, Any]], batch: int) -> None:
    """What is read is what was written, or it is said what is not; and never is there another exception than ours."""
    directory, whole = sound
    for seed in range(batch * 20, batch * 20 + 20):
        state = tmp_path / str(seed)
        shutil.copytree(directory, state)
        at = flip_bit(state / stores.FILE_NAME, seed)
        found, notes = read_or_refused(state)
        if found is None:
            assert "\n" not in notes[0] and "run mv" in notes[0], f"seed {seed}, byte {at}"
            continue
        assert found == whole or notes, f"seed {seed}, byte {at}: silently wrong"
        for one in found["slices"]:
            assert one in whole["slices"], f"seed {seed}, byte {at}: a slice that nobody made"
        assert contents(state) == (found, []), f"seed {seed}, byte {at}: it has settled"


def test_a_flipped_bit_in_the_log_is_said(tmp_path: Path) -> None:
    """SQLite takes a damaged frame for the end of the log."""
    source = tmp_path / "source"
    source.mkdir()
    store = Store(source)
    for name in "abcdef":
        store.apply([SaveSlice(make_slice(name))])
    crash = tmp_path / "crash"
    shutil.copytree(source, crash)
    store.close()
    whole = contents(shutil.copytree(crash, tmp_path / "whole"))
    assert whole[1] == [] and len(whole[0]["slices"]) == 6, "a log that is as it was is no reason to speak"
    for seed in range(40):
        state = tmp_path / str(seed)
        shutil.copytree(crash, state)
        at = flip_bit(state / f"{stores.FILE_NAME}-wal", seed)
        found, notes = contents(state)
        assert found == whole[0] or notes, f"seed {seed}, byte {at}: silently wrong"
        if notes:
            (aside,) = backups.existing(state / f"{stores.FILE_NAME}-wal", "damaged")
            assert "newest changes" in notes[0] and str(aside) in notes[0] and mode(aside) == 0o600
    torn = shutil.copytree(crash, tmp_path / "torn")
    log = torn / f"{stores.FILE_NAME}-wal"
    log.write_bytes(log.read_bytes()[:-3000])
    assert contents(torn)[1] == [], "a daemon that was killed while it wrote"


def test_a_damaged_log_that_cannot_be_copied_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No space for it: what is tried every second must not fill the rest of the disk."""
    source, state = tmp_path / "source", tmp_path / "state"
    source.mkdir()
    store = Store(source)
    store.apply([SaveSlice(make_slice("a"))])
    shutil.copytree(source, state)
    store.close()
    log = state / f"{stores.FILE_NAME}-wal"
    log.write_bytes(b"x" + log.read_bytes()[1:])
    really = shutil.copyfile

    def full(log: Path, copy: Path) -> None:
        if ".damaged-" in copy.name:
            copy.write_bytes(b"a part")
            raise OSError(errno.ENOSPC, "No space left on device")
        really(log, copy)

    monkeypatch.setattr(shutil, "copyfile", full)
    store = Store(state)
    assert store.unwritable
    assert not store.recover()
    assert backups.existing(log, "damaged") == []
    monkeypatch.setattr(shutil, "copyfile", really)
    assert store.recover()
    assert len(backups.existing(log, "damaged")) == 1
    store.close()


@pytest.mark.parametrize("damage", ["no database", "truncated", "empty", "no table", "version"])
def test_a_database_that_cannot_be_used_is_set_aside(tmp_path: Path, damage: str) -> None:
    fill_state(tmp_path)
    path = tmp_path / stores.FILE_NAME
    whole, _ = contents(tmp_path)
    if damage == "no database":
        path.write_bytes(b"x" * 8192)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-8192])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no table":
        change(tmp_path, "DROP TABLE slices")
    else:
        change(tmp_path, "PRAGMA user_version = 3")
    if damage == "no database":
        with pytest.raises(StoreError, match=r"nothing of it can be read.*run mv") as error:
            Store(tmp_path)
        assert "room" not in str(error.value)
        assert path.read_bytes() == b"x" * 8192, "each start says the same, and none begins without the slices"
        return
    found, notes = contents(tmp_path)
    if damage == "empty":
        return
    (aside,) = backups.existing(path, "damaged")
    assert mode(aside) == mode(path) == 0o600
    assert str(aside) in notes[0] and "was set aside as" in notes[0] and "room" not in notes[0]
    assert found["queues"] == whole["queues"] or damage == "truncated"
    assert (found["slices"] == whole["slices"]) == (damage == "version") or damage == "truncated"


def test_where_nothing_can_be_read_the_backup_is_taken(tmp_path: Path) -> None:
    fill_state(tmp_path)
    path = tmp_path / stores.FILE_NAME
    whole, _ = contents(tmp_path)
    with contextlib.closing(database(tmp_path)) as db:
        backups.back_up(db, path, 7)
    for raw in (b"x" * 8192, b""):
        path.write_bytes(raw)
        found, notes = contents(tmp_path)
        assert found == whole
        assert len(notes) == 1 and "the backup" in notes[0] and "vgpu slice ls" in notes[0]


def test_only_so_many_copies_are_kept(tmp_path: Path) -> None:
    fill_state(tmp_path)
    path = tmp_path / stores.FILE_NAME
    with contextlib.closing(database(tmp_path)) as db:
        for _ in range(5):
            backups.back_up(db, path, 7)
    assert len(backups.existing(path)) == backups.KEPT_MAX


@pytest.mark.parametrize(
    ("message", "fault", "remedy"),
    [
        ("no such table: slices", Fault.SCHEMA, "`vgpu restore` a backup"),
        ("no such column: crc", Fault.SCHEMA, "`vgpu restore` a backup"),
        ("database or disk is full", Fault.FULL, "has free space"),
        ("attempt to write a readonly database", Fault.READ_ONLY, "written to"),
        ("disk I/O error", Fault.DEVICE, "has free space and works"),
        ("unable to open database file", Fault.MISSING, "directory exists"),
        ("database is locked", Fault.BUSY, "which other process"),
        ("database disk image is malformed", Fault.DAMAGED, "damaged"),
        ("file is not a database", Fault.DAMAGED, "damaged"),
        ("malformed JSON", Fault.CONTENT, "a value in it"),
        ("Could not decode to UTF-8 column 'body'", Fault.CONTENT, "a value in it"),
    ],
)
def test_a_remedy_fits_its_error(message: str, fault: Fault, remedy: str) -> None:
    assert fault_of(sqlite3.OperationalError(message)) is fault
    assert remedy in fault.value and ("space" in fault.value) == (fault in (Fault.FULL, Fault.DEVICE))


def test_a_daemon_that_is_killed_while_it_sets_aside_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with an empty database."""
    fill_state(tmp_path)
    whole, _ = contents(tmp_path)
    change(tmp_path, "PRAGMA user_version = 3")

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Store(tmp_path)
    found, notes = contents(tmp_path)
    assert found == whole and len(notes) == 1
