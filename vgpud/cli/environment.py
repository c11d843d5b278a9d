"""The environment of a program in a slice: the preloaded shim, where it attaches, and which driver it stands in for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.cli.exits import CliError
from vgpud.errors import ExitCode

if TYPE_CHECKING:
    from vgpud.v1 import vgpud_pb2 as pb

#: what the loader splits LD_PRELOAD at
_SEPARATORS = " :\t\n"


def preload(libraries: list[Path], before: str) -> str:
    """LD_PRELOAD with the libraries in front of what was there; a shim of an outer `vgpu run` is left out."""
    for path in libraries:
        if any(c in str(path) for c in _SEPARATORS):
            text = f"cannot preload {str(path)!r}: the loader splits LD_PRELOAD at blanks and colons"
            raise CliError(f"{text}; install vgpud, and put its runtime directory, elsewhere", ExitCode.ENGINE)
    others = [e for e in before.replace(":", " ").split() if not Path(e).name.startswith("libvgpu")]
    return ":".join([*map(str, libraries), *others])


def for_slice(before: Mapping[str, str], node: pb.Node, item: pb.Slice, simulated: bool) -> dict[str, str]:
    """The environment of a program in this slice."""
    return dict(before) | {"VGPU_SOCKET": item.attach_socket, "VGPU_MODE": node.mode}
