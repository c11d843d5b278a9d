"""Fractions and sizes as users write them: exact, and every refusal names the value and the fix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.units import UnitError, format_bytes, format_gpus, format_value, parse_bytes, parse_gpus, parse_whole


@pytest.mark.parametrize(
    ("text", "milli"),
    [("0.5", 500), ("2.5", 2500), ("1", 1000), (".25", 250), ("0.001", 1), (" 3 ", 3000), ("1.50", 1500)],
)
def test_fractions_are_exact(text: str, milli: int) -> None:
    assert parse_gpus(text) == milli


@pytest.mark.parametrize(
    "text", ["0", "-1", "0.0001", "abc", "", "1e3", "inf", "1.", "17", "²", "0x1", "1 2", "9" * 99]
)
def test_wrong_fractions_are_named(text: str) -> None:
    with pytest.raises(UnitError) as refusal:
        parse_gpus(text)
    message = str(refusal.value)
    assert text.strip() in message
    assert "\n" not in message
    assert ":" in message, "the fix follows the value"


def test_zero_is_a_minimum() -> None:
    assert parse_gpus("0", zero=True) == 0


@given(st.integers(1, 16_000))
def test_fractions_come_back(milli: int) -> None:
    assert parse_gpus(format_gpus(milli)) == milli


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("8G", 8 << 30), ("8GiB", 8 << 30), ("8g", 8 << 30), ("512M", 512 << 20), ("8GB", 8 * 10**9)],
        *[
            ("1.5G", 3 << 29),
            ("4194304", 4 << 20),
            ("8Gi", 8 << 30),
            ("8gib", 8 << 30),
            ("8gb", 8 * 10**9),
            ("1 G", 1 << 30),
            ("2T", 2 << 40),
            ("64KiB", 65536),
        ],
    ],
)
def test_sizes_are_exact(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "8X", "0", "0.3G", "1..5G", "8 G B", "99999999T"])
def test_wrong_sizes_are_named(text: str) -> None:
    with pytest.raises(UnitError) as refusal:
        parse_bytes(text)
    assert text.strip() in str(refusal.value)
    assert "write for example" in str(refusal.value)


@pytest.mark.parametrize(("text", "hint"), [("8", "8G"), ("1.5", "1.5G"), ("512", "512G"), ("8192", "8192M")])
def test_a_small_size_without_a_unit_is_answered_with_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(UnitError, match=f"^{text} has no unit, and would be bytes: write {hint}$"):
        parse_bytes(text)
    assert parse_bytes(hint) == parse_bytes(f"{hint}iB".lower())


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("007", 7), ("65535", 65535)])
def test_whole_numbers(text: str, number: int) -> None:
    assert parse_whole(text, 65535) == number


@pytest.mark.parametrize("text", ["", "65536", "-1", "+1", " 1", "1_0", "1.0", "²", "٣", "0x1", "9" * 5000, "0" * 5000])
def test_what_is_no_whole_number(text: str) -> None:
    """More than 4,300 digits included, which int() refuses with a ValueError of Python's."""
    assert parse_whole(text, 65535) is None


@pytest.mark.parametrize("parse", [parse_gpus, parse_bytes])
def test_long_texts_are_shown_in_part(parse: Callable[[str], int]) -> None:
    with pytest.raises(UnitError) as refusal:
        parse("9" * 5000)
    assert "99... is not a" in str(refusal.value) and len(str(refusal.value)) < 300


def test_what_cannot_be_written_is_named_by_its_kind() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert format_value(10**5000) == "a value (int) that is too large to show"
    assert format_value(deep) == "a value (list) that is too large to show"
    assert (format_value("a"), format_value([1.5])) == ("'a'", "[1.5]")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (1023, "1023B"), (1 << 30, "1GiB"), (3 << 29, "1.5GiB"), (-(1 << 20), "-1MiB")]
)
def test_sizes_are_shown_short(size: int, text: str) -> None:
    assert format_bytes(size) == text
