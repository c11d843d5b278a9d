"""Upgrade, rollback and downgrade as docs/upgrade.md has them: with the code of the release before, and by versions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import vgpud
from tests.daemon.test_shells import make_slice
from tests.older import Sources, older_sources, versions_of
from tests.rules.tree import ROOT
from tests.store.test_damaged_state import contents, fill_state
from tests.store.test_jobs import all_rows, drop_copies, row
from vgpud.core.events import SaveSlice
from vgpud.core.jobs.model import QueueSpec
from vgpud.errors import StoreError
from vgpud.store import backups, manual_backup, restore
from vgpud.store import database as stores
from vgpud.store.database import MIGRATIONS, Store
from vgpud.store.jobs import DEFAULT_QUEUE_AS_IT_WAS, USAGE_OF_COPIES, JobStore

WRITE = """
from tests.store import test_damaged_state
fill_state = getattr(test_damaged_state, "fill_state", None) or test_damaged_state.filled  # as older ones call it
fill_state(state)
print(len(MIGRATIONS))
"""
READ = """
try:
    store = Store(state)
except StoreError as error:
    print(error)
else:
    print(sorted(one.name for one in store.load(10).slices), len(JobStore(store).load().jobs))
"""
HEAD = """
import sys
from pathlib import Path
from vgpud.errors import StoreError
from vgpud.store.database import MIGRATIONS, Store
from vgpud.store.jobs import JobStore
state = Path(sys.argv[1])
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return older_sources(tmp_path_factory.mktemp("older"), "vgpud", "tests")


def test_versions_are_counted() -> None:
    assert versions_of("HEAD") in (0, len(MIGRATIONS), len(MIGRATIONS) - 1)  # 0: a clone without history


def test_from_the_release_before_and_back(older: Sources, tmp_path: Path) -> None:
    """Written by its code, kept by this one, refused by its code and, once restored, read by it as it was."""
    state = tmp_path / "state"
    state.mkdir(0o700)
    version = int(older.run("-c", HEAD + WRITE, state))
    as_it_was = older.run("-c", HEAD + READ, state)

    store = Store(state)  # the upgrade
    notes = list(store.notes)
    names = sorted(one.name for one in store.load(10).slices)
    assert f"{names} {len(JobStore(store).load().jobs)}" == as_it_was and len(names) == 4
    store.apply([SaveSlice(make_slice("later"))])
    store.close()
    if version == len(MIGRATIONS):
        pytest.skip("the release before has the same version of the database: nothing to go back to")
    (copy,) = backups.existing(state / stores.FILE_NAME)
    assert notes == [f"the database is brought from version {version} to this one's; as it was, it is kept as {copy}"]

    refused = older.run("-c", HEAD + READ, state)  # the downgrade, which is refused and changes nothing
    assert "was written by a newer vgpud" in refused
    assert "later" in [one.name for one in contents(state)[0]["slices"]]

    restored = restore.restore(state, copy)  # the rollback
    assert restored.contents.version == version and restored.old_copy
    assert older.run("-c", HEAD + READ, state) == as_it_was


@contextmanager
def next_release() -> Iterator[None]:
    """This code is that of a later release, whose database has a further table."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (stores, manual_backup, restore):
            patch.setattr(module, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE further (name TEXT)",)))
        yield


def without_names(text: str) -> str:
    """A sentence without the numbers of versions and times in it."""
    return re.sub(r"\d+", "0", text)


def test_a_newer_database_is_refused_with_the_command_that_leads_back(tmp_path: Path) -> None:
    fill_state(tmp_path)
    before, _ = contents(tmp_path)
    with next_release():
        Store(tmp_path).close()
    with pytest.raises(StoreError, match="install that one again, or go back to the state from before") as error:
        Store(tmp_path)
    quoted = re.search("vgpud: (.+was written by a newer vgpud.+)", (ROOT / "docs/upgrade.md").read_text())
    assert quoted and without_names(quoted[1]) == without_names(
        str(error.value).replace(str(tmp_path), "/var/lib/vgpud")
    )
    command = re.search(r"`vgpu restore --state-dir (\S+) (\S+)`", str(error.value))
    (copy,) = backups.existing(tmp_path / stores.FILE_NAME)
    assert command and command.groups() == (str(tmp_path), str(copy))
    restored = restore.restore(tmp_path, copy)
    assert contents(tmp_path) == (before, [])

    with next_release():  # and forward again, to the state of then
        assert restored.old_copy
        restore.restore(tmp_path, restored.old_copy)
        Store(tmp_path).close()


def test_without_a_copy_from_before_only_the_newer_release_is_named(tmp_path: Path) -> None:
    with next_release():
        Store(tmp_path).close()
    with pytest.raises(StoreError, match=r"this one knows \d+\): install that one again$"):
        Store(tmp_path)


def test_a_backup_of_an_older_release_is_restored_and_upgraded(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for directory in (old, new):
        directory.mkdir(0o700)
    fill_state(old)
    manual_backup.make(old, tmp_path / "copy")
    with next_release():
        assert restore.restore(new, tmp_path / "copy").contents.version == len(MIGRATIONS)
        store = Store(new)
        assert len(store.load(10).slices) == 4 and "is brought from version" in store.notes[0]
        store.close()


def test_a_backup_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    with next_release():
        fill_state(tmp_path)
        manual_backup.make(tmp_path, tmp_path / "copy")
    with pytest.raises(StoreError, match=f"install vgpud {vgpud.__version__} or newer, then restore it"):
        restore.restore(tmp_path, tmp_path / "copy")
    manual_backup.make(tmp_path, tmp_path / "by-an-older-vgpu")  # which cannot say which release reads it
    with pytest.raises(StoreError, match="install the vgpud that made it, then restore it"):
        restore.restore(tmp_path, tmp_path / "by-an-older-vgpu")


def go_back(directory: Path, migration: tuple[str, ...] = DEFAULT_QUEUE_AS_IT_WAS) -> None:
    """To a database of before that migration: by default of before new queues had another order."""
    before = next(at for at, statements in enumerate(MIGRATIONS) if statements is migration)
    with closing(sqlite3.connect(directory / "vgpud.sqlite3")) as database:
        drop_copies(database)
        if migration is not USAGE_OF_COPIES:
            database.execute("DROP TABLE queue_orders")
        database.execute(f"PRAGMA user_version = {before}")
        database.commit()


def test_usage_of_before_copies_were_accounted_stays_and_more_is_added(tmp_path: Path) -> None:
    old = row(7, 5, "x", 0, 10)
    store = Store(tmp_path)
    JobStore(store).save_rows([old])
    store.close()
    go_back(tmp_path, USAGE_OF_COPIES)
    store = Store(tmp_path)
    assert [note.partition(" to this one's")[0] for note in store.notes] == ["the database is brought from version 23"]
    jobs, new = JobStore(store), row(8, 5, "x", 10, 20)
    jobs.save_rows([new])
    assert all_rows(jobs) == [replace(old, copy_to_device_bytes=0, copy_from_device_bytes=0), new]
    store.close()


@pytest.mark.parametrize("was_used", [True, False])
def test_a_queue_whose_order_was_never_set_keeps_it(tmp_path: Path, was_used: bool) -> None:
    """The queue default was first in, first out, until new databases began with another order."""
    store = Store(tmp_path)
    if was_used:
        store.apply([SaveSlice(make_slice("one"))])
    store.close()
    go_back(tmp_path)
    store = Store(tmp_path)
    kept = JobStore(store).load().queues
    store.close()
    assert kept == (((QueueSpec("default", policy="fifo"), ()),) if was_used else ())


def test_a_set_order_is_kept(tmp_path: Path) -> None:
    chosen = QueueSpec("default", policy="srsf", limit_milli=500)
    store = Store(tmp_path)
    JobStore(store).save_queue(chosen, ("uid:7",))
    store.close()
    go_back(tmp_path)
    store = Store(tmp_path)
    assert JobStore(store).load().queues == ((chosen, ("uid:7",)),)
    store.close()
