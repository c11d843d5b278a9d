"""Files that users name are read up to a bound, and what keeps a parser busy is found before it is parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpud.userfiles import bounded, toml

FILE = Path("f.toml")


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1024)
    assert bounded.read_bytes(path, 1024) == b"x" * 1024
    for known in (path, Path("/dev/zero")):  # a device has no size
        with pytest.raises(bounded.FileError, match="has more than 0 KiB"):
            bounded.read_bytes(known, 1023)
    with pytest.raises(bounded.FileError, match=r"cannot read .*: No such file"):
        bounded.read_bytes(tmp_path / "none", 1)
    path.write_bytes(b"ab\xff")
    with pytest.raises(bounded.FileError, match=r"is not text \(UTF-8\) at byte 2"):
        bounded.read_text(path, 1024)


def read_lines(path: Path, bytes_max: int = 1024) -> list[str]:
    with bounded.open_text(path, bytes_max) as file:
        return list(file)


def test_lines_are_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\r\ntwo\n")
    assert read_lines(path) == ["one\r\n", "two\n"]
    for known in (path, Path("/dev/zero")):  # a device has no size, and this one no lines
        with pytest.raises(bounded.FileError, match="has more than 0 KiB"):
            read_lines(known, 8)
    for unreadable in (tmp_path / "none", tmp_path, Path("a\0b")):
        with pytest.raises(bounded.FileError, match="cannot read "):
            read_lines(unreadable)
    path.write_bytes(b"ab\xff")
    with pytest.raises(bounded.FileError, match=r"is not text \(UTF-8\)"):
        read_lines(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n" + "a." * 16 + "b = 1", "f.toml line 2: a key has more than 16 parts"),
        ("x = 1\n[" + '"a".' * 16 + "b]", "line 2: a key has more than 16 parts"),
        ("a = {" + "b." * 16 + "c = 1}", "line 1: a key has more than 16 parts"),
        ("a = [\n" * 33, "line 33: tables and lists are nested more than 32 deep"),
        ("a" * 257 + " = 1", "line 1: a key or number has 257 characters"),
        ("a = 'x\n" + "b." * 100_000, "is not TOML"),
        ('a = "' + '\\"' * 100_000, "is not TOML"),
        ('"""' + "x" * 100_000, "is not TOML"),
    ],
)
def test_keys_and_nesting_are_bounded(text: str, message: str) -> None:
    with pytest.raises(bounded.FileError, match=message):
        toml.parse(FILE, text)


def test_texts_and_comments_may_hold_anything() -> None:
    dots, deep = "a." * 1000, "[" * 1000
    text = f"# {dots}{deep}\na = '{dots}{deep}'\nb = \"{dots}\\\"{deep}\"\nc = '''{dots}\n{deep}''''\n"
    text += f'd = """{dots}\\"\n{deep}"""\n[e.f]\ng = [1.5, 2.5, {{h = 1}}]\nw = 1979-05-27T07:32:00.999Z\n'
    text += "\n".join(f"t{n} = [[1.5], ['x']]" for n in range(50))
    found = toml.parse(FILE, text.replace("\n", "\r\n"))
    assert found["a"] == dots + deep
    assert found["d"].endswith(deep)
    assert found["e"]["f"]["g"] == [1.5, 2.5, {"h": 1}]
