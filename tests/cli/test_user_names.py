"""Documents for programs: the name of a user stands beside the number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.jobs import job_view, usage_view
from vgpud.view.slices import event_view, process_view, slice_view
from vgpud.view.user_names import find_user_name

ROOT, UNKNOWN = 0, 4_000_000_000
NAME_OF_NUMBER = {"uid": "user", "owner_uid": "owner"}


def numbers(document: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """(object, key) of each number of a user, however deep. The uid of a slice or claim is text, and no user's."""
    if isinstance(document, list):
        for one in document:
            yield from numbers(one)
    if isinstance(document, dict):
        yield from ((document, key) for key in NAME_OF_NUMBER if not isinstance(document.get(key, ""), str))
        for one in document.values():
            yield from numbers(one)


def views(uid: int) -> list[Any]:
    return [
        job_view(pb.Job(uid=uid), frozenset()),
        usage_view(pb.Usage(uid=uid)),
        slice_view(pb.Slice(uid="a", owner_uid=uid), frozenset()),
        process_view(pb.Process(uid=uid), frozenset()),
        event_view(pb.Event(owner_uid=uid)),
    ]


@pytest.mark.parametrize(("uid", "name"), [(ROOT, "root"), (UNKNOWN, None)])
def test_each_number_has_its_name(uid: int, name: str | None) -> None:
    seen = [(one[key], one[NAME_OF_NUMBER[key]]) for one, key in numbers(views(uid))]
    assert seen == [(uid, name)] * 5


def test_what_is_any_users_has_no_name() -> None:
    assert find_user_name(None) is None
    assert slice_view(pb.Slice(), frozenset())["owner"] is None


def test_the_listings_of_the_command_line_have_names(vgpu: Any, daemon: Any) -> None:
    assert vgpu("slice", "create", "train", "--gpus", "0.25", host=daemon.host).code == 0
    (item,) = vgpu("slice", "ls", "-o", "json", host=daemon.host).json["slices"]
    assert (item["owner_uid"], item["owner"]) == (os.getuid(), find_user_name(os.getuid()))
