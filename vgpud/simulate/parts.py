"""Parts of JSON of which only the begin has been looked at: what is of another type than it must be is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def get_object(of: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object; {} where there is none."""
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def get_objects(of: Mapping[str, Any], key: str) -> Sequence[dict[str, Any]]:
    """The objects of a list."""
    return [each for each in get_list(of, key) if isinstance(each, dict)]


def get_list(of: Mapping[str, Any], key: str) -> list[Any]:
    found = of.get(key)
    return found if isinstance(found, list) else []
