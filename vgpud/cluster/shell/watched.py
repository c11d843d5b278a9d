"""A file that its owner may change at any time: whether it is another than at the last look."""

from __future__ import annotations

from pathlib import Path


class WatchedFile:
    """Known by inode, time of change and size, so that a file moved over it counts, too, and one whose time of
    modification was set back (cp -p)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self) -> bool:
        """Also at the first look, and once when it is gone."""
        try:
            found = self.path.stat()
            now = found.st_ino, found.st_ctime_ns, found.st_size
        except OSError:
            now = 0, 0, 0
        changed, self._seen = now != self._seen, now
        return changed
