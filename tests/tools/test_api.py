"""docs/api.md and the client's generated parts: current, and complete."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.rules.tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import api
import proto


def test_what_is_committed_is_what_the_proto_makes() -> None:
    stale = [str(path) for path, text in api.outputs().items() if path.read_text() != text]
    assert not stale, "run `make gen`"


def test_everything_in_the_proto_has_a_comment() -> None:
    assert proto.load().uncommented() == []


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        ("  string drained = 15; // reason", "  string drained = 15;\n  // reason", "Device.drained"),
        ("// A physical (or simulated) device: a GPU, or a MIG instance of one.\n", "", "Device"),
        ("  // One slice.\n", "", "SliceService.GetSlice"),
        ("// Jobs.\nservice", "service", "JobService"),
    ],
)
def test_a_missing_comment_is_found(before: str, after: str, missing: str) -> None:
    text = proto.PROTO.read_text()
    assert before in text
    assert missing in proto.parse(text.replace(before, after)).uncommented()


def test_text_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"extend tools/proto\.py"):
        proto.parse(proto.PROTO.read_text().replace("message Node {", "message Node {\n  oneof x {"))


def test_the_document_has_every_field() -> None:
    text = (Path(ROOT) / "docs" / "api.md").read_text()
    for block in proto.load().messages.values():
        assert all(f"| `{field.name}` |" in text for field in block.fields), block.name
