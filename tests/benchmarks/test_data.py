"""What is shipped of other people's data says where it is from, under which licence, and is what was fetched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data"
SETS = sorted(path for path in DATA.iterdir() if path.is_dir())
BYTES_MAX = 8 << 20


def test_there_are_some() -> None:
    assert {"gavel", "muri", "philly", "tiresias"} <= {path.name for path in SETS}


@pytest.mark.parametrize("folder", SETS, ids=lambda path: path.name)
def test_source_and_checksums(folder: Path) -> None:
    source = json.loads((folder / "source.json").read_text())
    assert all(source[key] for key in ("what", "source", "commit", "licence", "sha256"))
    assert (folder / "LICENSE").read_text().strip()
    found = {path.name for path in folder.iterdir()} - {"source.json", "LICENSE"}
    assert found == set(source["sha256"]), "each file has its checksum, each checksum its file"
    for name, digest in source["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_size() -> None:
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) <= BYTES_MAX
