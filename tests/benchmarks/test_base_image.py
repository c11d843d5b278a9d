"""Where the base image's packages come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.base_image import usual_mirror


def apt_that_prints(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "apt-get").write_text(f"#!/bin/sh\nprintf '{text}'\n")
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)


def test_the_machines_own_mirror_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt_that_prints(tmp_path, "http://mirror.invalid/debian/\\nhttp://mirror.invalid/debian/\\n", monkeypatch)
    assert usual_mirror() == "http://mirror.invalid/debian/"
    monkeypatch.setenv("DEBIAN_MIRROR", "http://named.invalid/debian")
    assert usual_mirror() == "http://named.invalid/debian"


def test_another_distribution_leaves_it_to_debootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt_that_prints(tmp_path, "", monkeypatch)
    assert usual_mirror() == ""
