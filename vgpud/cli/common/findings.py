"""The findings of `vgpu doctor`'s checks, and the state that the checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.cli.common.options import Settings

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb


@dataclass
class Finding:
    """One line: the check's name (stable, for scripts), ok/warn/fail, what was found, how to fix it."""

    check: str
    level: str
    text: str
    remedy: str = ""


@dataclass
class Look:
    """State that the checks share: the options, and the daemon's answers once it has been asked. is_remote: it is on
    another machine, whose files and programs cannot be looked at."""

    settings: Settings
    node: pb.Node | None = None
    is_remote: bool = False
    device_uuids: tuple[str, ...] = ()
    device_indices: tuple[int, ...] = ()
    fronts: list[Path] = field(default_factory=list)  # paths that engines have registered as the runtime `vgpu`


Check = Callable[[Look], Iterator[Finding]]
