"""Our CDI files."""

from __future__ import annotations

from pathlib import Path


class Cdi:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, slice_name: str) -> None: ...
    def close(self, slice_name: str) -> None: ...
