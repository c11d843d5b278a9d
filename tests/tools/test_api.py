"""docs/api.md and the client's generated parts: current, and complete."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

import pytest

from tests.rules.tree import ROOT
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

sys.path.insert(0, str(ROOT / "tools"))
import api
import proto


def meaning(path: Path, text: str) -> tuple[str, list[str]]:
    """What a file says, whatever its layout: `make lint` looks at that, with ruff, which `make test` does without."""
    if path.suffix != ".py":
        return text, []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return ast.dump(ast.parse(text)), [token.string for token in tokens if token.type == tokenize.COMMENT]


def test_what_is_committed_is_what_the_proto_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.subprocess, "run", None)  # as where nothing but the packages of `test` is installed
    drafts = api.drafts()
    stale = [str(path) for path, text in drafts.items() if meaning(path, path.read_text()) != meaning(path, text)]
    assert len(drafts) == 5 and not stale, "run `make gen`"


def test_another_word_in_a_comment_or_a_name_is_found() -> None:
    path = Path("model.py")
    text = api.drafts()[api.CLIENT / path]
    assert meaning(path, text) == meaning(path, text.replace("\n\n\n", "\n\n"))
    for before, after in (("#: ", "#: not "), ("    name: str", "    label: str")):
        assert before in text and meaning(path, text.replace(before, after)) != meaning(path, text)


def test_everything_in_the_proto_has_a_comment() -> None:
    assert proto.load().find_uncommented() == []


@pytest.mark.parametrize(
    ("line", "after", "missing"),
    [
        ("  string drained = 15; // reason", "  string drained = 15;\n  // reason", "Device.drained"),
        ("// A physical (or simulated) device: a GPU, or a MIG instance of one.\n", "", "Device"),
        ("  // One slice.\n", "", "SliceService.GetSlice"),
        ("// Jobs.\nservice", "service", "JobService"),
        ("// The state of a job.\n", "", "JobState"),
        ("JOB_STATE_HELD = 2; // waits", "JOB_STATE_HELD = 2;\n  // waits", "JOB_STATE_HELD"),
    ],
)
def test_a_missing_comment_is_found(line: str, after: str, missing: str) -> None:
    text = proto.PROTO.read_text()
    assert line in text
    assert missing in proto.parse(text.replace(line, after)).find_uncommented()


@pytest.mark.parametrize("wrong", ["HELD = 2", "JOB_STATE_HELD = 3", "JOB_STATE_UNSPECIFIED = 2", "STATE_HELD = 2"])
def test_a_value_of_an_enum_has_its_prefix_and_the_next_number(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{wrong}: write JOB_STATE_"):
        proto.parse(proto.PROTO.read_text().replace("JOB_STATE_HELD = 2", wrong))


def test_words_stand_for_the_numbers_of_the_compiled_enums() -> None:
    for name, enum in words.ENUMS.items():
        values = pb.DESCRIPTOR.enum_types_by_name[name].values
        assert [(enum.to_word(value.number), enum.to_number(enum.to_word(value.number))) for value in values] == [
            (word, number) for number, word in enumerate(("", *enum.words))
        ]
        assert all(value.name.endswith(f"_{word.upper()}") for value, word in zip(values[1:], enum.words, strict=True))
        assert enum.to_word(1000) == "1000", "a later version's"
    assert set(words.ENUMS) == set(pb.DESCRIPTOR.enum_types_by_name)


def test_text_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"extend tools/proto\.py"):
        proto.parse(proto.PROTO.read_text().replace("message Node {", "message Node {\n  oneof x {"))


def test_the_document_has_every_field() -> None:
    text = (Path(ROOT) / "docs" / "api.md").read_text()
    for block in proto.load().messages.values():
        assert all(f"| `{field.name}` |" in text for field in block.fields), block.name
