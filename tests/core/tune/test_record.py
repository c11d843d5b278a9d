"""Records of tunings: kept, read again, and applied to commands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.tune.match import apply_record
from vgpud.core.tune.model import Candidate, Work
from vgpud.core.tune.record import Record, RecordError, Row, read_record

COMMAND = ("python", "train.py", "--batch", "{batch}")


def candidate(gpus_milli: int, batch: int) -> Candidate:
    return Candidate(gpus_milli, "batch", (("batch", batch),))


RECORD = Record(
    name="train",
    command=COMMAND,
    variables=(("SIZE", "{batch}"),),
    directory="/home/a",
    device="NVIDIA H200",
    unix_s=1_700_000_000,
    unit="samples",
    run_s=60.0,
    work=Work(samples=100),
    rows=(
        Row(candidate(250, 64), rate=50.0, progress_s=60.0, mem_peak_bytes=1 << 30),
        Row(candidate(500, 64), rate=90.0, progress_s=4.0, mem_bytes=1 << 31),
        Row(candidate(250, 128), why_out="out of memory"),
        Row(candidate(500, 128), rate=120.0, progress_s=60.0),
    ),
    choice=3,
    gpu_seconds_used=10.0,
    gpu_seconds_granted=20.0,
)


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_record(RECORD.to_json()) == RECORD
    assert read_record(replace(RECORD, choice=-1).to_json()).chosen_row is None


def change_fields(**fields: Any) -> str:
    return json.dumps({**json.loads(RECORD.to_json()), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        change_fields(version=2),
        change_fields(rows=[]),
        change_fields(choice=4),
        change_fields(choice=-2),
        change_fields(choice=2),
        change_fields(command=[]),
        change_fields(command=[1]),
        change_fields(unknown=1),
        change_fields(run_s="x"),
        change_fields(run_s=-1),
        change_fields(work={"samples": -1}),
        change_fields(name=None),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        read_record(text)
    assert str(caught.value) and "\n" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_json_is_refused_or_read(data: Any) -> None:
    with pytest.raises(RecordError):
        read_record(json.dumps(data))


def test_the_command_with_its_placeholders_gets_the_choice() -> None:
    applied = apply_record(RECORD, COMMAND)
    assert applied and applied.row == RECORD.rows[3]
    assert applied.command == (*COMMAND[:-1], "128") and applied.variables == (("SIZE", "128"),)


def test_a_command_with_values_gets_the_best_of_these() -> None:
    applied = apply_record(RECORD, (*COMMAND[:-1], "64"))
    assert applied and applied.row == RECORD.rows[0] and applied.command[-1] == "64"


def test_what_cannot_be_used_is_not_chosen() -> None:
    rows = (replace(RECORD.rows[0], why_out="its job was cancelled"), *RECORD.rows[1:])
    applied = apply_record(replace(RECORD, rows=rows), (*COMMAND[:-1], "64"))
    assert applied and applied.row == RECORD.rows[1]


@pytest.mark.parametrize("command", [(*COMMAND[:-1], "32"), ("python", "other.py", "--batch", "64"), COMMAND[:-1]])
def test_no_other_command_gets_a_size(command: tuple[str, ...]) -> None:
    assert apply_record(RECORD, command) is None


def test_a_deadline_that_none_met_gives_no_size() -> None:
    late = replace(RECORD, choice=-1, work=Work(samples=1000, deadline_s=1))
    assert apply_record(late, COMMAND) is None and apply_record(late, (*COMMAND[:-1], "64")) is None
