"""Tables and texts within the width of a terminal."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies

from vgpud.view.fit import Cell, Grid, cells_of, draw, wrap_text

REASON = "queue a has reached its limit of 2 GPUs, of which 1.5 are in use by job 3 (1) and job 4 (0.5)"


def draw_lines(grid: Grid, width: int | None, headers: bool = True) -> list[str]:
    return ["".join(text for text, _ in line) for line in draw(grid, headers, width).lines]


def jobs(reason: str = REASON) -> Grid:
    return Grid(
        (">JOB", "NAME", "USER", "STATE", "WHY"),
        [("7", "train-a", "alice", Cell("pending", "red"), reason), ("12", "b", "bob", "running", "device 0")],
        first_to_go=("NAME",),
        own_line_columns=("WHY",),
    )


def test_a_pipe_gets_every_column_in_one_line() -> None:
    lines = draw_lines(jobs(), None)
    assert lines[0] == "JOB  NAME     USER   STATE    WHY"
    assert lines[1] == f"  7  train-a  alice  pending  {REASON}"
    assert lines[2] == " 12  b        bob    running  device 0"


def test_a_long_reason_gets_its_own_lines_and_a_short_one_stays() -> None:
    lines = draw_lines(jobs(), 60)
    assert lines[0] == "JOB  NAME     USER   STATE    WHY"
    assert lines[1] == "  7  train-a  alice  pending"
    assert " ".join(line.strip() for line in lines[2:-1]) == REASON
    assert all(line.startswith("    ") for line in lines[2:-1])
    assert lines[-1] == " 12  b        bob    running  device 0"


def test_columns_go_in_their_order() -> None:
    lines = draw_lines(jobs(), 24)
    assert lines[0].split() == ["JOB", "USER", "STATE", "WHY"]
    assert lines[1].split() == ["7", "alice", "pending"]
    assert draw(jobs(), True, 24).left_out == ["NAME"]
    assert "device 0" in lines[-1]


def test_one_long_name_costs_no_column_and_no_reason_its_place() -> None:
    """The column NAME went from all rows, and every reason to a line of its own."""
    rows = [("1", "n" * 60, "alice", "running", "device 0"), ("2", "train", "bob", "pending", "device 0 has 0.25 free")]
    titles = (">JOB", "NAME", "USER", "STATE", "WHY")
    grid = Grid(titles, rows, first_to_go=("NAME",), own_line_columns=("WHY",), names=("NAME", "USER"))
    assert draw_lines(grid, 80) == [
        "JOB  NAME                         USER   STATE    WHY",
        "  1  " + "n" * 26 + "~  alice  running  device 0",
        "  2  train                        bob    pending  device 0 has 0.25 free",
    ]
    assert draw_lines(grid, 40)[0].split() == ["JOB", "NAME", "USER", "STATE"]
    assert draw_lines(grid, None)[1].split()[1] == "n" * 60, "a pipe gets all of it"


def test_a_second_text_is_named_by_its_title() -> None:
    grid = Grid(
        ("RESULT", "FOUND", "FIX"),
        [("fail", "x " * 20, "do this"), ("ok", "fine", "-")],
        own_line_columns=("FOUND", "FIX"),
    )
    assert draw_lines(grid, 30) == [
        "RESULT  FOUND",
        "fail",
        "    x x x x x x x x x x x x x",
        "    x x x x x x x",
        "    fix: do this",
        "ok      fine",
    ]


def test_a_name_that_is_wider_than_the_terminal_is_cut_and_marked() -> None:
    (line,) = draw_lines(Grid(("SLICE", "GATE"), [("x" * 60, "count")]), 40, headers=False)
    assert line == f"{'x' * 32}~  count"
    assert len(line) == 40


def test_control_characters_of_names_are_escaped() -> None:
    assert draw_lines(Grid(("A",), [("a\x1b[2Jb",)]), None, headers=False) == ["a\\x1b[2Jb"]


@hypothesis.given(
    rows=strategies.lists(
        strategies.tuples(*(strategies.text("ab c\u4e2d", max_size=n) for n in (9, 30, 12, 200))), max_size=4
    ),
    width=strategies.integers(30, 120),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    words = [tuple(" ".join(word[:20] for word in text.split()) for text in row) for row in rows]
    grid = Grid((">A", "B", "C", "D"), list(words), first_to_go=("C",), own_line_columns=("D",))
    lines = draw_lines(grid, width)
    assert all(cells_of(line) <= width for line in lines)
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", range(16, 60))
def test_every_column_is_in_the_header_or_named(width: int) -> None:
    """The titles of texts on lines of their own were in neither, and columns that were left out nowhere."""
    drawing = draw(jobs(), True, width)
    header, *lines = ["".join(text for text, _ in line) for line in drawing.lines]
    labels = {line.split(":")[0].strip().upper() for line in lines if ":" in line}
    assert {*header.split(), *drawing.left_out, *labels} == {"JOB", "NAME", "USER", "STATE", "WHY"}


def test_texts_break_between_words() -> None:
    assert wrap_text("one two three", 8) == ["one two", "three"]
    assert wrap_text("  label  one two three", 14, " " * 9) == ["  label  one", " " * 9 + "two", " " * 9 + "three"]
    assert wrap_text("/a/path/that/is/longer", 8) == ["/a/path/that/is/longer"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_the_number_the_user_and_the_state_are_kept(width: int) -> None:
    assert draw_lines(jobs(), max(width, 24))[1].split()[0] == "7"
