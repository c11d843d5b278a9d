"""Origins of slices in the database: each comes back as it was, and what the version before wrote gets its own."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_origins import ALLOCATION, CLAIM, ONE_OF_EACH, SHARE, UID
from vgpud.core import origins
from vgpud.core.checksums import seal, unseal
from vgpud.core.events import SaveRequest, SaveSlice
from vgpud.core.model import Origin, Remembered, Slice, Spec
from vgpud.core.origins import Job, SlurmStep, User
from vgpud.store.database import FILE_NAME, MIGRATIONS, Store
from vgpud.store.row_checks import slice_of
from vgpud.store.slice_bodies import write_slice

#: the version of the database before slices had origins
BEFORE = 18
USED = User("one", "slice-1", ephemeral=True, cdi_device=True, cdi_used=True)


def make_slice(origin: Origin) -> Slice:
    return Slice(origin, "u", 3, Spec(500, device_uuids=("GPU-0",)), (SHARE,), 1000, 5, 2, "team", "paused")


@pytest.mark.parametrize("origin", [*ONE_OF_EACH, USED, Job(7), SlurmStep(12, "")], ids=repr)
def test_each_comes_back_as_it_was(tmp_path: Path, origin: Origin) -> None:
    store = Store(tmp_path)
    store.apply([SaveSlice(make_slice(origin)), SaveRequest("1000/r", Remembered("f", make_slice(origin), 0))])
    store.close()
    loaded = Store(tmp_path).load(0)
    assert loaded.slices == (make_slice(origin),) and loaded.requests[0][1].answer == make_slice(origin)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"origin": {"kind": "Nobody", "name": "a"}},
        {"origin": {"name": "a"}},
        {"origin": {"kind": "User", "name": 5}},
        {"origin": {"kind": "User", "name": "a", "more": 1}},
        {"origin": "a"},
        {"origin": None},
    ],
)
def test_what_is_no_origin_is_not_believed(change: dict[str, Any]) -> None:
    body = unseal(write_slice(make_slice(User("a"))))
    body.pop("crc", None)
    assert slice_of(seal(body)) == make_slice(User("a"))
    with pytest.raises(ValueError, match="is not a Slice of this version"):
        slice_of(seal(body | change))


def old_body(name: str, **fields: Any) -> dict[str, Any]:
    """A slice as the version before wrote it."""
    share = {"device_uuid": "GPU-0", "min_milli": 500, "max_milli": 500, "mem_min_bytes": 1 << 30}
    spec = {"gpus_milli": 500, "min_milli": None, "device_uuids": ["GPU-0"], "service_class": "batch", "spread": 0}
    body = {"name": name, "uid": f"u-{name}", "serial": 3, "spec": spec, "shares": [share | {"mem_max_bytes": 1 << 30}]}
    body |= {"ephemeral": False, "owner_uid": 1000, "created_wall_ns": 5, "revision": 2, "cdi_device": False}
    body |= {"cdi_used": False, "queue": "team", "job_id": 0, "suspended": "paused", "claim": None}
    return body | fields


def old_claim(origin: origins.KubernetesOrigin, device_ids: list[str]) -> dict[str, Any]:
    granted = old_body("x")["shares"]
    body = {"uid": origin.uid, "namespace": origin.namespace, "name": origin.name, "pods": list(origin.pods)}
    body |= {"granted": granted, "boot_id": "boot", "device_ids": device_ids, "lent": False}
    return body | {"pod_names": list(origin.pod_names)}


OLD = [
    (old_body("a"), User("a")),
    (old_body("run", ephemeral=True), User("run", ephemeral=True)),
    (
        old_body("alloc-1", ephemeral=True, cdi_device=True, cdi_used=True),
        User("alloc-1", ephemeral=True, cdi_device=True, cdi_used=True),
    ),
    (old_body("j-7", job_id=7), Job(7)),
    (old_body("j-70-12", job_id=70), Job(70, 12)),
    (old_body("slurm-12"), SlurmStep(12, "")),
    (old_body("slurm-12.0", ephemeral=True), SlurmStep(12, "0")),
    (old_body("slurm-12.batch", ephemeral=True), SlurmStep(12, "batch")),
    (old_body("slurm-x.batch"), User("slurm-x.batch")),
    (old_body("slurm-1.x"), User("slurm-1.x")),
    (old_body(f"k-{UID}", cdi_device=True, claim=old_claim(CLAIM, [])), CLAIM),
    (
        old_body(f"k-{UID}", cdi_device=True, claim=old_claim(ALLOCATION, list(ALLOCATION.device_ids))),
        ALLOCATION,
    ),
]


def write_old(path: Path, rows: list[tuple[str, str | bytes]]) -> None:
    """A database of the version before, with these slices."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in (statement for version in MIGRATIONS[:BEFORE] for statement in version):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {BEFORE}")
        for name, text in rows:
            db.execute("INSERT INTO slices VALUES (?, ?, ?)", (f"u-{name}", name, text))


@pytest.mark.parametrize(("body", "origin"), OLD, ids=lambda one: repr(one)[:40])
def test_those_of_the_version_before(tmp_path: Path, body: dict[str, Any], origin: Origin) -> None:
    write_old(tmp_path / FILE_NAME, [(body["name"], seal(body)), ("bad", "{")])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as db:
        db.execute("INSERT INTO requests (id, fingerprint, body, serial) VALUES ('0/r', 'f', ?, 1)", (seal(body),))
        db.execute("INSERT INTO requests (id, fingerprint, body, serial) VALUES ('0/s', 'f', NULL, 2)")
    store = Store(tmp_path)
    (loaded,) = store.load(0).slices
    assert (loaded.origin, loaded.name) == (origin, body["name"])
    assert (loaded.queue, loaded.suspended, loaded.revision, loaded.shares) == ("team", "paused", 2, (SHARE,))
    assert [one.answer for _, one in store.load(0).requests] == [loaded, None]
    assert any("slice 'bad' was set aside" in note for note in store.notes)
    store.apply([SaveSlice(loaded)])
    text = json.loads(store.read(lambda db: db.execute("SELECT body FROM slices").fetchone()[0]))
    assert text["origin"]["kind"] == type(origin).__name__ and "crc" in text
    store.close()


SOUND = old_body("good")
ODD = {
    "flag_of_text": seal(old_body("odd", ephemeral="x")),
    "flag_of_a_number": seal(old_body("odd", ephemeral=1)),
    "flag_of_a_list": seal(old_body("odd", cdi_used=[])),
    "claim_of_a_number": seal(old_body("odd", claim=5)),
    "lent_of_a_number": seal(old_body("odd", claim=old_claim(ALLOCATION, ["a"]) | {"lent": 1})),
    "job_of_text": seal(old_body("odd", job_id="x")),
    "job_of_another_name": seal(old_body("odd", job_id=7)),
    "no_object": "[1]",
    "blob": json.dumps(old_body("odd")).encode(),
    "wrong_checksum": seal(old_body("odd")).replace('"min_milli": 500', '"min_milli": 400'),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_an_odd_row_of_the_version_before_is_set_aside_alone(tmp_path: Path, text: str | bytes) -> None:
    write_old(tmp_path / FILE_NAME, [("good", seal(SOUND)), ("odd", text)])
    store = Store(tmp_path)
    assert [one.name for one in store.load(0).slices] == ["good"]
    assert [note for note in store.notes if "'odd' was set aside" in note]
    store.close()


def test_a_damaged_database_of_the_version_before_is_read_row_by_row(tmp_path: Path) -> None:
    """Its slices are copied as they are, and are read as those of the version before all the same."""
    path = tmp_path / FILE_NAME
    write_old(path, [("good", seal(SOUND)), ("run", seal(old_body("run", ephemeral=True)))])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for number in range(2000):
            db.execute("INSERT INTO events VALUES (?, 1, 'k', 's', 'd', 1, ?, 0)", (number, "m" * 60))
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()[0]
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * page_bytes)
        file.write(b"\xff" * 200)
    store = Store(tmp_path)
    assert sorted(one.name for one in store.load(0).slices) == ["good", "run"]
    assert any("were read from it" in note for note in store.notes)
    store.close()
