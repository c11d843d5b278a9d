"""The project's addresses are set in one place, and all that shows them takes them from there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from setuptools import Distribution
from setuptools.config.pyprojecttoml import apply_configuration

from tests.rules.tree import ROOT
from vgpud.project import addresses as project

sys.path.insert(0, str(ROOT / "tools"))
import addresses

SET = {
    "REPOSITORY_URL": "https://code.invalid/vgpud",
    "ISSUES_URL": "https://code.invalid/vgpud/issues",
    "SECURITY_URL": "mailto:security@code.invalid",
}


@pytest.fixture
def all_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a fork that has set all addresses; the modules that read them once read them again."""
    for name, url in SET.items():
        monkeypatch.setattr(project, name, url)
    yield
    monkeypatch.undo()
    importlib.reload(importlib.import_module("vgpud.serve"))
    importlib.reload(importlib.import_module("vgpud.cli.main"))


def test_addresses_are_urls_or_empty() -> None:
    for url in (project.REPOSITORY_URL, project.ISSUES_URL, project.SECURITY_URL):
        assert not url or url.startswith(("https://", "mailto:")), url
    assert "<" in project.MAINTAINER, "a name and <an address>, as dpkg wants it"


def test_without_addresses_nothing_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SET:
        monkeypatch.setattr(project, name, "")
    assert (project.list_addresses(), project.describe_addresses()) == ({}, "")
    assert project.ask_for_report() == "please report it"


def test_one_address_alone_is_shown_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SET:
        monkeypatch.setattr(project, name, "")
    monkeypatch.setattr(project, "REPOSITORY_URL", SET["REPOSITORY_URL"])
    assert project.describe_addresses().splitlines()[1:] == ["The project:", f"  Repository: {SET['REPOSITORY_URL']}"]


@pytest.mark.usefixtures("all_set")
def test_help_version_and_messages_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.reload(importlib.import_module("vgpud.cli.main"))
    serve = importlib.reload(importlib.import_module("vgpud.serve"))
    main.invoke(["--help"])
    serve.main(["--help"], standalone_mode=False)
    help_texts = capsys.readouterr().out
    main.invoke(["version", "--client"])
    version = capsys.readouterr().out
    for url in SET.values():
        assert help_texts.count(url) >= 2 and url in version
    assert project.ask_for_report().endswith(SET["ISSUES_URL"])


def test_the_package_names_what_the_one_place_names(tmp_path: Path) -> None:
    """pyproject.toml leaves the URLs to setup.py, which reads them from a copy of the place with all of them set."""
    distribution = Distribution()
    apply_configuration(distribution, ROOT / "pyproject.toml", ignore_option_errors=True)
    assert not distribution.metadata.project_urls, "a second place"
    for name in ("pyproject.toml", "README.md", "LICENSE", "cuda_hook.c"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "shim").symlink_to(ROOT / "shim")
    (tmp_path / "vgpud/project").mkdir(parents=True)
    (tmp_path / "vgpud/__init__.py").symlink_to(ROOT / "vgpud/__init__.py")
    text = (ROOT / "vgpud/project/addresses.py").read_text()
    for name, url in SET.items():
        begin = text.index(f"\n{name} = ") + 1
        text = text[:begin] + f'{name} = "{url}"' + text[text.index("\n", begin) :]
    (tmp_path / "vgpud/project/addresses.py").write_text(text)
    (tmp_path / "setup.py").write_text((ROOT / "setup.py").read_text())  # no link: it looks beside itself
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    written = (tmp_path / "vgpud.egg-info/PKG-INFO").read_text()
    titles = ("Repository", "Issues", "Security")
    for title, url in zip(titles, SET.values(), strict=True):
        assert f"Project-URL: {title}, {url}\n" in written


def test_security_md_has_the_address() -> None:
    text = addresses.SECURITY.read_text()
    assert addresses.replace(text, project.SECURITY_URL) == text, "run `make gen`"
    assert f"in private: <{SET['SECURITY_URL']}>" in addresses.replace(text, SET["SECURITY_URL"])
    with pytest.raises(SystemExit):
        addresses.replace("no such lines", "")
