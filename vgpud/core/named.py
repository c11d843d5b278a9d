"""Policies and rules that users choose by name with parameters, `2d-las(3250,7200,promote=8)`: one table each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

#: parameters of one name, at most
ARGUMENTS_MAX = 64
_DIGITS_MAX = 18
#: names that are suggested for a mistyped one, and how much alike they are at least, of 1
_NEAR_MAX = 3
_LIKENESS = 0.6
_CHARS_MAX = 64
_PROPER_NAME = re.compile(r"\b[A-Z]\w+")

Made = TypeVar("Made")


class InvalidSpec(ValueError):
    """An invalid name or parameter; the text is one line that names the value and the fix."""


@dataclass(slots=True)
class Arguments:
    """The parameters in brackets: numbers in order, names with numbers, and bare words."""

    numbers: list[Fraction] = field(default_factory=list)
    named_numbers: dict[str, Fraction] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    weights: dict[int, Fraction] = field(default_factory=dict)  # by uid


@dataclass(frozen=True, slots=True)
class Choice(Generic[Made]):
    """One row of the table: its description, its parameters, and how it is built."""

    line: str
    build: Callable[[str, Arguments], Made]
    numbers: str = ""  # what the numbers in order are; "" = it takes none
    parameter_names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    table: bool = False  # file=PATH gives more numbers
    weights: bool = False  # UID=WEIGHT

    @property
    def takes(self) -> str:
        parts = [self.numbers] if self.numbers else []
        parts += [f"{name}=NUMBER" for name in self.parameter_names]
        parts += ["file=PATH"] if self.table else []
        parts += ["UID=WEIGHT"] if self.weights else []
        parts += self.words
        return ", ".join(parts) or "nothing"


def make_of(
    what: str,
    choices: Mapping[str, Choice[Made]],
    text: str,
    read: Callable[[str], Sequence[Fraction]] | None = None,
) -> Made:
    """The object that `text` names. `what`: the word for messages, e.g. "policy". `read`: the numbers in a file. Raises
    InvalidSpec."""
    name, bracket, rest = text.strip().partition("(")
    name = name.strip()
    choice = choices.get(name)
    if choice is None:
        raise InvalidSpec(f"there is no {what} {name!r}{_hint(name, choices)}")
    if bracket and not rest.endswith(")"):
        raise InvalidSpec(f"{what} {text!r} has no closing bracket: write {name}(...)")
    return choice.build(text.strip(), _arguments(name, choice, rest[:-1], read))


def _hint(name: str, choices: Mapping[str, Choice[Made]]) -> str:
    """The names that a mistyped one may stand for, or those whose description has it as a proper name (Themis, DRF);
    else all names."""
    name = name[:_CHARS_MAX].lower()
    near = difflib.get_close_matches(name, choices, _NEAR_MAX, _LIKENESS)
    near = near or [each for each, one in choices.items() if name in map(str.lower, _PROPER_NAME.findall(one.line))]
    return f", did you mean {' or '.join(near)}?" if near else f": choose one of {', '.join(choices)}"


def _arguments(
    name: str, choice: Choice[Made], text: str, read: Callable[[str], Sequence[Fraction]] | None
) -> Arguments:
    found = Arguments()
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if len(items) > ARGUMENTS_MAX:
        raise InvalidSpec(f"{name} with {len(items)} parameters: at most {ARGUMENTS_MAX} are allowed")
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if equals and key in choice.parameter_names and key not in found.named_numbers:
            found.named_numbers[key] = _number(name, value, item)
        elif equals and choice.weights and key.isascii() and key.isdigit() and len(key) <= _DIGITS_MAX:
            found.weights[int(key)] = _number(name, value, item)
        elif equals and choice.table and key == "file":
            if read is None:
                raise InvalidSpec(f"{name}: no files are read here: write the numbers themselves")
            found.numbers.extend(read(value))
        elif item in choice.words:
            found.words.add(item)
        elif choice.numbers and not equals and item[:1].isdigit():
            found.numbers.append(_number(name, item, item))
        else:
            raise InvalidSpec(f"{name} does not take {item!r}: it takes {choice.takes}")
    return found


def _number(name: str, text: str, item: str) -> Fraction:
    whole, point, part = text.partition(".")
    digits = whole + part
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX or (point and not part):
        raise InvalidSpec(f"{name}: {item!r} has no number of 0 or more: write for example 3250 or 0.5")
    return Fraction(int(digits), 10 ** len(part))
