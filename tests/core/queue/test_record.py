"""Events and commands as plain data: all of them come back as they were, through JSON."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.core.jobs import events
from vgpud.core.jobs.model import Job, Node, QueueSpec
from vgpud.core.queue import record

EVENTS = get_args(events.Event)
COMMANDS = get_args(events.Command)


@pytest.mark.parametrize("kind", [*EVENTS, *COMMANDS], ids=lambda kind: kind.__name__)
def test_comes_back(kind: type) -> None:
    @settings(max_examples=examples(20), deadline=None)
    @given(st.from_type(kind))
    def check(entry: Any) -> None:
        plain = json.loads(json.dumps(record.to_plain(entry)))
        again = record.from_plain(plain)
        assert type(again) is kind
        assert record.to_plain(again) == plain
        # a Job or a Node is only equal to itself; `run` is not kept
        if kind not in (events.SaveJob, events.Submitted, events.Changed, events.NodesChanged):
            assert again == entry

    check()


@settings(max_examples=examples(20), deadline=None)
@given(st.from_type(Job), st.from_type(QueueSpec), st.from_type(Node))
def test_parts_come_back(job: Job, queue: QueueSpec, node: Node) -> None:
    for one in (job, queue, node):
        assert record.encode(record.decode(type(one), json.loads(json.dumps(record.encode(one))))) == record.encode(one)
    assert record.decode(QueueSpec, record.encode(queue)) == queue


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"type": "Exploded"}, "Exploded"),
        ({"type": "Held"}, "job_id"),
        ({"type": "Held", "job_id": "1"}, "'1' is no int"),
        ({"type": "Held", "job_id": 1, "colour": "red"}, "Held has no colour"),
        ({"type": "JobSuspended", "job_id": 1, "how": "magic"}, "magic"),
        ({"type": "RoomChanged", "node": "n", "direct": [["u", 1]], "offered": []}, "2 items, not 3"),
    ],
)
def test_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record.from_plain(data)
