"""The file of the history: bounded, with what ended first forgotten first; a damaged one is set aside."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from vgpud.core.history.fold import Folded
from vgpud.core.history.levels import LEVELS
from vgpud.core.history.points import Measured, Point, Subject, sample
from vgpud.core.history.unsaved import Unsaved
from vgpud.errors import StoreError, StoreUnwritableError
from vgpud.store import history_chunks
from vgpud.store.history import FILE_NAME, HistoryFile

NOW_S = 1_800_000_000
MIB = 1 << 20


def used(milli: float) -> Point:
    return sample(milli, 100, 500, 0, milli * MIB, 0)


def record(
    file: HistoryFile, at_s: int, milli: float = 100, name: str = "a", key: str = "", owner_uid: int = 0
) -> None:
    unsaved = Unsaved()
    unsaved.add(at_s, [Measured(Subject("slice", key or f"uid-{name}"), name, owner_uid, used(milli))])
    file.save(unsaved.take())


def read(
    file: HistoryFile, name: str = "a", level: int = 0, since_s: int = 0, until_s: int = 4_000_000_000
) -> list[float]:
    found = file.find("slice", name, None)
    if not found:
        return []
    step_s = LEVELS[level].step_s
    folded = Folded(step_s, step_s, since_s, until_s)
    file.read(found.series, level, since_s, until_s, folded)
    return [point.used_milli for _, point in folded.points()]


@pytest.fixture
def file(tmp_path: Path) -> HistoryFile:
    return HistoryFile(tmp_path)


def test_what_was_saved_is_read_by_the_next_daemon(file: HistoryFile, tmp_path: Path) -> None:
    for n in range(3):
        record(file, NOW_S + 10 * n, 100 * n)
    file.close()
    assert read(HistoryFile(tmp_path)) == [0, 100, 200]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_point_that_was_saved_half_is_completed(file: HistoryFile) -> None:
    for n, milli in enumerate((100, 200, 600)):
        record(file, NOW_S + 10 * n, milli)
    assert read(file, level=2) == [300]


def test_ten_seconds_are_kept_for_an_hour_and_minutes_longer(file: HistoryFile) -> None:
    for n in range(0, 3 * 3600, 60):
        record(file, NOW_S + n)
    assert len(read(file, level=0)) == LEVELS[0].chunks_max * 5
    assert len(read(file, level=1)) == 180


def test_a_clock_that_jumps_loses_nothing_older(file: HistoryFile) -> None:
    for n in range(60):
        record(file, NOW_S + 60 * n)
    before = len(read(file, level=1))
    record(file, NOW_S + 20 * 365 * 86_400)
    record(file, NOW_S + 3600)
    record(file, NOW_S - 365 * 86_400)
    assert len(read(file, level=1, until_s=NOW_S + 3601, since_s=NOW_S)) == before + 1


def test_after_hours_in_the_future_the_present_is_kept(file: HistoryFile) -> None:
    future_s = NOW_S + 365 * 86_400
    for n in range(2 * LEVELS[0].chunks_max):
        record(file, future_s + n * LEVELS[0].chunk_s)
    for n in range(3):
        record(file, NOW_S + n * LEVELS[0].chunk_s, 300)
    assert read(file, until_s=NOW_S + 86_400) == [300, 300, 300]


def test_the_last_of_several_with_one_name_is_found(file: HistoryFile) -> None:
    record(file, NOW_S, 100, key="old")
    record(file, NOW_S + 10, 200, key="new")
    assert read(file) == [200]
    assert read(file, name="old") == [100]


def test_a_user_finds_only_their_own_and_what_is_open_to_all(file: HistoryFile) -> None:
    record(file, NOW_S, owner_uid=1000, key="k1")
    record(file, NOW_S + 10, owner_uid=2000, key="k2")
    record(file, NOW_S, owner_uid=-1, name="shared")
    assert [found and found.key for found in (file.find("slice", "a", uid) for uid in (1000, 2000, 3000))] == [
        "k1",
        "k2",
        None,
    ]
    assert file.find("slice", "shared", 3000)
    assert not file.find("slice", "k1", 2000)
    assert not file.find("job", "a", None)


def test_series_that_ended_first_are_forgotten_first(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path, series_max=100)
    for n in range(150):
        record(file, NOW_S + n, name=f"s{n}")
    assert not read(file, "s0")
    assert read(file, "s149")
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        (series,) = db.execute("SELECT count(*) FROM series").fetchone()
        (orphans,) = db.execute("SELECT count(*) FROM points WHERE id >> 30 NOT IN (SELECT id FROM series)").fetchone()
    assert series <= 100
    assert not orphans


def test_who_has_most_that_has_ended_loses_it_first(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path, series_max=100)
    record(file, NOW_S, name="another", owner_uid=2000)
    for n in range(150):
        record(file, NOW_S + n, name=f"s{n}", owner_uid=1000)
    assert read(file, "another") and not read(file, "s0")


def test_bytes_are_bounded_also_when_nothing_has_ended(tmp_path: Path) -> None:
    bytes_max = 400_000
    file = HistoryFile(tmp_path, bytes_max=bytes_max)
    for day in range(40):
        unsaved = Unsaved()
        for n in range(96):
            at_s = NOW_S + day * 86_400 + n * 900
            measured = [
                Measured(Subject("slice", f"u{k}"), f"s{k}", 0, used((at_s * (k + 7)) % 997)) for k in range(20)
            ]
            unsaved.add(at_s, measured)
        file.save(unsaved.take())
        assert file.bytes_used() <= bytes_max
    assert read(file, "s3", level=2)[-1] == (NOW_S + 39 * 86_400 + 95 * 900) * 10 % 997


@pytest.mark.parametrize("damage", [b"", b"no database" * 500, None])
def test_a_damaged_file_is_set_aside_and_the_history_begins_again(
    file: HistoryFile, tmp_path: Path, damage: bytes | None
) -> None:
    record(file, NOW_S)
    file.close()
    path = tmp_path / FILE_NAME
    if damage is None:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE points SET body = x'00'")
    else:
        path.write_bytes(damage)
    if damage != b"":  # an empty file is a new one
        with pytest.raises(StoreError, match=r"set aside as history\.sqlite3\.damaged") as error:
            record(file, NOW_S)
        assert "\n" not in str(error.value)
        assert (tmp_path / f"{FILE_NAME}.damaged").exists()
    record(file, NOW_S + 10, 300)
    assert read(file) == [300]


def test_a_file_of_another_version_is_set_aside(file: HistoryFile, tmp_path: Path) -> None:
    record(file, NOW_S)
    file.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 9")
    with pytest.raises(StoreError, match="version is 9"):
        read(file)
    record(file, NOW_S)


def test_a_disk_without_space_is_no_damage(file: HistoryFile, tmp_path: Path) -> None:
    record(file, NOW_S)
    file._open().execute("PRAGMA max_page_count = 1")

    def fill_disk() -> None:
        for n in range(300):
            record(file, NOW_S + n * 900, name=f"s{n}")

    with pytest.raises(StoreUnwritableError, match="free space"):
        fill_disk()
    assert not (tmp_path / f"{FILE_NAME}.damaged").exists()
    assert read(file, level=2), "what was there is there"


def test_chunks_keep_the_columns() -> None:
    columns = history_chunks.empty(30)
    history_chunks.put(columns, {3: used(123), 29: sample(1e12, 0, 0, 5, 0, -1)})
    assert history_chunks.unpack(history_chunks.pack(columns), 30) == columns
    assert columns[1][3] == 123
    assert columns[1][29] == (1 << 32) - 1
    for bad in (b"", b"x", history_chunks.pack(columns)[:-3], history_chunks.pack(columns)):
        with pytest.raises(ValueError, match="chunk"):
            history_chunks.unpack(bad, 60)
