"""The file of shared links, for one boot of the machine. It has digests only, and is its console's alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from vgpud.console.login.shares import Shares
from vgpud.host import private_files
from vgpud.host.boot import boot_id

log = logging.getLogger("vgpud.console")

FILE_NAME = "console-links.json"
_BYTES_MAX = 1 << 20


def load(path: Path, shares: Shares, now_ns: int) -> None:
    """What a former console has left there; nothing of another boot."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ValueError("too large")
        kept = json.loads(path.read_text())
        if kept["boot"] == boot_id():
            shares.load(kept["links"], now_ns)
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("shared links of before have ended, %s cannot be read: %s", path, error)


def save(path: Path, shares: Shares) -> None:
    """Raises OSError."""
    private_files.replace(path, json.dumps({"boot": boot_id(), "links": shares.as_plain()}))
