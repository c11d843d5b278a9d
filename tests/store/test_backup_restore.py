"""`vgpu backup` of a state in use, `vgpu restore` into the place of another one, and what is refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.node import Node
from tests.daemon.test_shells import make_slice
from tests.store.test_damaged_state import change, contents, database, fill_state
from tests.store.test_jobs import S, job
from tests.store.test_private_state import SECRET, mode, secret_job
from vgpud import __version__
from vgpud.core.events import ForgetSlice, SaveSlice
from vgpud.core.jobs.model import JobState
from vgpud.errors import ConflictError, DeniedError, ExitCode, StoreError, VgpudError
from vgpud.host.directories import DirectoryLock
from vgpud.store import backups, manual_backup, restore
from vgpud.store import database as stores
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with something in every table that matters."""
    directory = tmp_path / "state"
    directory.mkdir(0o700)
    fill_state(directory)
    return directory


@pytest.fixture
def copy(state: Path, tmp_path: Path) -> Path:
    """A backup of it."""
    manual_backup.make(state, tmp_path / "copy")
    return tmp_path / "copy"


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"vgpud.lock"}


# ---- backup ----


def test_all_of_it_comes_back_elsewhere(state: Path, copy: Path, tmp_path: Path) -> None:
    before, _ = contents(state)
    other = tmp_path / "other"
    other.mkdir(0o700)
    restored = restore.restore(other, copy)
    assert restored.old_copy is None and files(other) == {stores.FILE_NAME}
    assert (restored.contents.slices, restored.contents.jobs, restored.contents.queues) == (4, 4, 1)
    assert contents(other) == (before, [])


def test_a_copy_is_private_of_one_file_and_says_where_it_is_from(state: Path, tmp_path: Path) -> None:
    found = manual_backup.make(state, tmp_path / "copy")
    assert mode(tmp_path / "copy") == 0o600 and files(tmp_path) == {"copy", "state"}
    assert (found.release, found.version, found.node) == (__version__, len(stores.MIGRATIONS), os.uname().nodename)
    assert found.made_wall_ns > 10**18


def test_what_is_in_the_log_alone_is_copied(tmp_path: Path) -> None:
    """As a running daemon has it: the newest changes are not in the file alone."""
    store = Store(tmp_path)
    store.apply([SaveSlice(make_slice("in-the-log"))])
    found = manual_backup.make(tmp_path, tmp_path / "copy")
    shutil.copyfile(tmp_path / stores.FILE_NAME, tmp_path / "file-alone")
    store.close()
    assert found.slices == 1
    with contextlib.closing(sqlite3.connect(tmp_path / "file-alone")) as db:
        assert db.execute("SELECT count(*) FROM slices").fetchone() == (0,)


def test_a_copy_is_of_one_moment_while_another_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.apply([SaveSlice(make_slice("a")), SaveSlice(make_slice("b"))])
    real = backups.copy_to

    def while_it_copies(*arguments: object) -> None:
        store.apply([ForgetSlice("uid-a"), SaveSlice(make_slice("c"))])  # is not kept waiting either
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(backups, "copy_to", while_it_copies)
    manual_backup.make(tmp_path, tmp_path / "copy")
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "copy")) as db:
        assert [name for (name,) in db.execute("SELECT name FROM slices ORDER BY name")] == ["a", "b"]


def test_environments_are_of_jobs_that_have_not_ended_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    jobs = JobStore(store)
    jobs.save([secret_job(1)], next_id=5)
    manual_backup.make(tmp_path, tmp_path / "with")
    jobs.save([secret_job(1, JobState.COMPLETED, ended_ns=9 * S)])
    manual_backup.make(tmp_path, tmp_path / "without")
    store.close()
    assert SECRET.encode() in (tmp_path / "with").read_bytes()
    assert SECRET.encode() not in (tmp_path / "without").read_bytes()


def test_a_database_that_another_holds_is_no_endless_wait(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manual_backup, "_BUSY_S", 0.1)
    with contextlib.closing(database(state)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"locked; check which other process has it open"):
            manual_backup.make(state, tmp_path / "copy")
    assert files(tmp_path) == {"state"}


def missing_database(state: Path, target: Path) -> None:
    (state / stores.FILE_NAME).unlink()


def taken_name(state: Path, target: Path) -> None:
    target.write_text("mine")


def damaged_database(state: Path, target: Path) -> None:
    file = state / stores.FILE_NAME
    raw = bytearray(file.read_bytes())
    raw[8192:16384] = b"\xff" * 8192
    file.write_bytes(raw)


def missing_folder(state: Path, target: Path) -> None:
    target.parent.rmdir()


BACKUP_REFUSED: dict[Callable[[Path, Path], None], tuple[ExitCode, str]] = {
    missing_database: (ExitCode.NOT_FOUND, "there is no state database .*--state-dir"),
    taken_name: (ExitCode.CONFLICT, "exists: choose a name that is not taken"),
    damaged_database: (ExitCode.OTHER, "cannot back up .*the file is damaged"),
    missing_folder: (ExitCode.OTHER, "cannot back up .*No such file or directory"),
}


@pytest.mark.parametrize("case", BACKUP_REFUSED, ids=lambda case: case.__name__)
def test_a_backup_that_is_not_possible(state: Path, tmp_path: Path, case: Callable[[Path, Path], None]) -> None:
    (tmp_path / "to").mkdir()
    target = tmp_path / "to" / "copy"
    case(state, target)
    with pytest.raises(VgpudError, match=BACKUP_REFUSED[case][1]) as error:
        manual_backup.make(state, target)
    assert error.value.exit_code is BACKUP_REFUSED[case][0]
    assert not target.exists() or target.read_text() == "mine"
    assert not list(tmp_path.glob("to/.*"))


# ---- restore ----


def test_the_replaced_state_is_kept_and_can_be_restored(state: Path, copy: Path) -> None:
    change(state, "DELETE FROM slices")
    emptied, _ = contents(state)
    restored = restore.restore(state, copy)
    assert restored.old_copy and mode(restored.old_copy) == 0o600
    assert len(contents(state)[0]["slices"]) == 4
    undone = restore.restore(state, restored.old_copy)
    assert undone.contents.release == "" and contents(state) == (emptied, [])


def test_a_replaced_state_is_kept_with_its_log(state: Path, copy: Path) -> None:
    """Of a daemon that was killed: its newest changes are in the log alone."""
    store = Store(state)
    store.apply([SaveSlice(make_slice("newest"))])
    for end in ("", "-wal"):
        shutil.copyfile(state / f"{stores.FILE_NAME}{end}", state.parent / f"killed{end}")
    store.close()
    for end in ("", "-wal"):
        shutil.copyfile(state.parent / f"killed{end}", state / f"{stores.FILE_NAME}{end}")
    restored = restore.restore(state, copy)
    assert "newest" not in [one.name for one in contents(state)[0]["slices"]]
    assert restored.old_copy
    restore.restore(state, restored.old_copy)
    assert "newest" in [one.name for one in contents(state)[0]["slices"]]


def test_every_replaced_state_is_kept(state: Path, copy: Path) -> None:
    """An admin who tries one backup after another may want the state from before the first."""
    for _ in range(5):
        restore.restore(state, copy)
    assert len(backups.existing(state / stores.FILE_NAME, "replaced")) == 5


def test_numbers_of_jobs_are_not_given_twice(state: Path, copy: Path) -> None:
    store = Store(state)
    JobStore(store).save([job(41)], next_id=42)
    store.close()
    restore.restore(state, copy)
    assert contents(state)[0]["next"] == 42


def test_a_damaged_state_is_replaced_too(state: Path, copy: Path) -> None:
    (state / stores.FILE_NAME).write_bytes(b"\xff" * 8192)
    assert restore.restore(state, copy).old_copy
    assert len(contents(state)[0]["slices"]) == 4


def newer(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("UPDATE origin SET release = '7.5.0'")
        db.commit()


def newer_without_origin(copy: Path) -> None:
    newer(copy)
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("DROP TABLE origin")


def damage_copy(copy: Path) -> None:
    raw = bytearray(copy.read_bytes())
    raw[8192:16384] = b"\xff" * 8192
    copy.write_bytes(raw)


def other_tables(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("ALTER TABLE drains RENAME TO drained")


def foreign(copy: Path) -> None:
    copy.unlink()
    with contextlib.closing(sqlite3.connect(copy)) as db:
        db.execute("CREATE TABLE songs (title TEXT)")
    copy.chmod(0o600)


def missing(copy: Path) -> None:
    copy.unlink()


def folder(copy: Path) -> None:
    copy.unlink()
    copy.mkdir()


def writable_by_others(copy: Path) -> None:
    copy.chmod(0o666)


RESTORE_REFUSED: dict[Callable[[Path], None], tuple[ExitCode, str]] = {
    newer: (ExitCode.OTHER, "is of a newer vgpud .*version 99.*: install vgpud 7.5.0 or newer, then restore it"),
    newer_without_origin: (ExitCode.OTHER, "is of a newer vgpud .*: install the vgpud that made it, then restore it"),
    damage_copy: (ExitCode.OTHER, "is not a sound copy of the state"),
    other_tables: (ExitCode.OTHER, "is not a sound copy of the state: drains is not as version"),
    foreign: (ExitCode.OTHER, "it is not a database of vgpud"),
    missing: (ExitCode.NOT_FOUND, "there is no file"),
    folder: (ExitCode.OTHER, "cannot restore .*directory"),
    writable_by_others: (ExitCode.DENIED, "has mode 666: others can put jobs of any user into it"),
}


@pytest.mark.parametrize("case", RESTORE_REFUSED, ids=lambda case: case.__name__)
def test_a_copy_that_is_refused_changes_nothing(state: Path, copy: Path, case: Callable[[Path], None]) -> None:
    case(copy)
    before, names = (state / stores.FILE_NAME).read_bytes(), files(state)
    with pytest.raises(VgpudError, match=RESTORE_REFUSED[case][1]) as error:
        restore.restore(state, copy)
    assert error.value.exit_code is RESTORE_REFUSED[case][0]
    assert (state / stores.FILE_NAME).read_bytes() == before and files(state) == names


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_copy_of_another_user_is_refused(state: Path, copy: Path) -> None:
    os.chown(copy, 12345, -1)
    with pytest.raises(DeniedError, match="belongs to uid 12345"):
        restore.restore(state, copy)


def test_not_while_the_directory_is_in_use(state: Path, copy: Path) -> None:
    lock = DirectoryLock(state, "--state-dir")
    with pytest.raises(ConflictError, match=f"another vgpud \\(pid {os.getpid()}\\) uses"):
        restore.restore(state, copy)
    lock.close()
    assert restore.restore(state, copy).old_copy


# ---- with a daemon ----


def test_a_running_daemon_is_backed_up_and_gets_the_state_back(node: Node, tmp_path: Path) -> None:
    node.start()
    node.create("kept", 250)
    found = manual_backup.make(node.state, tmp_path / "copy")
    assert found.slices == 1
    node.create("later", 250)
    with pytest.raises(ConflictError, match="stop it"):
        restore.restore(node.state, tmp_path / "copy")
    assert node.names() == ["kept", "later"]
    node.stop(signal.SIGKILL)
    restored = restore.restore(node.state, tmp_path / "copy")
    node.start()
    assert node.names() == ["kept"]
    node.create("new", 250)
    node.stop()
    assert restored.old_copy
    restore.restore(node.state, restored.old_copy)
    node.start()
    assert node.names() == ["kept", "later"]


def test_a_backup_is_not_put_into_what_others_have_made(state: Path, tmp_path: Path) -> None:
    """Neither through a link to another file, nor into a file that belongs to another user."""
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    link = tmp_path / "backup"
    link.symlink_to(victim)
    with pytest.raises(ConflictError, match="exists"):
        manual_backup.make(state, link)
    assert victim.read_text() == "as it was"


def test_a_name_that_is_taken_meanwhile_is_left_alone(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"

    def take_name(path: Path) -> manual_backup.Contents:
        target.write_text("somebody else's")
        return checked(path)

    checked = manual_backup._check_copy
    monkeypatch.setattr(manual_backup, "_check_copy", take_name)
    with pytest.raises(ConflictError, match="exists"):
        manual_backup.make(state, target)
    assert target.read_text() == "somebody else's"
    assert [one.name for one in tmp_path.iterdir() if "backup" in one.name] == ["backup"]
