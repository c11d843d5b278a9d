"""What the checks of `vgpu doctor` yield, and what they know of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.cli.common.options import Settings

if TYPE_CHECKING:
    from vgpud.v1 import vgpud_pb2 as pb


@dataclass
class Finding:
    """One line: the check's name (stable, for scripts), ok/warn/fail, what was found, how to mend it."""

    check: str
    level: str
    text: str
    mend: str = ""


@dataclass
class Look:
    """What the checks know: the options, and what the daemon said of itself once it has been asked."""

    settings: Settings
    node: pb.Node | None = None
    device_uuids: tuple[str, ...] = ()
    device_indices: tuple[int, ...] = ()
    fronts: list[Path] = field(default_factory=list)  # what engines have registered as our runtime


Check = Callable[[Look], Iterator[Finding]]
