"""Slices by the begin of their name."""

from __future__ import annotations

from typing import Any

import pytest

from vgpud.v1alpha1 import vgpud_pb2 as pb

NOT_FOUND = 4


@pytest.fixture
def slices(daemon: Any) -> Any:
    for name in ("train", "train-2", "serve"):
        daemon.create(name)
    return daemon


def test_the_only_slice_that_begins_so_is_meant(vgpu: Any, slices: Any) -> None:
    result = vgpu("slice", "show", "se", "-o", "name", host=slices.host)
    assert (result.code, result.stdout, result.stderr) == (0, "serve\n", "vgpu: se is slice serve\n")
    assert vgpu("slice", "show", "train-", "-o", "name", host=slices.host).stdout == "train-2\n"
    assert vgpu("slice", "set", "serv", "--priority", "5", host=slices.host).code == 0
    assert slices.requests[-1].name == "serve" and isinstance(slices.requests[-1], pb.UpdateSliceRequest)
    slices.add_process("serve", 7, "python")
    assert vgpu("ps", "--slice", "se", "-o", "name", host=slices.host).stdout == "7\n"


def test_a_complete_name_is_never_a_begin(vgpu: Any, slices: Any) -> None:
    result = vgpu("slice", "show", "train", "-o", "name", host=slices.host)
    assert (result.stdout, result.stderr) == ("train\n", "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tr", "'tr' is the begin of 2 slices: train, train-2: write more of the name"),
        ("x", "no slice x"),
    ],
)
def test_several_or_none_is_refused(vgpu: Any, slices: Any, name: str, message: str) -> None:
    result = vgpu("slice", "show", name, host=slices.host)
    assert result.code == NOT_FOUND
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_what_is_removed_is_named_in_full(vgpu: Any, slices: Any) -> None:
    assert vgpu("slice", "rm", "se", host=slices.host).code == NOT_FOUND
    assert "serve" in slices.slices
