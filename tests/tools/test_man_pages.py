"""Manual pages: one for each command, with all that its `--help` says, in roff that groff prints without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.rules.tree import ROOT
from vgpud.cli.main import COMMANDS, cli

sys.path.insert(0, str(ROOT / "tools"))
import man_pages


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return man_pages.pages()


def words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


def plain(roff: str) -> str:
    """What a reader sees: requests are left out, escapes are read."""
    lines = []
    for line in roff.splitlines():
        text = line.partition(" ")[2] if re.match(r"\.(SH|B|BR|TH)\b", line) else line
        lines += [] if re.match(r"\.(nf|fi|PP|TP)$", text) else [text]
    found = "\n".join(lines)
    for escape, sign in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ga", "`"), (r"\(ha", "^"), (r"\(ti", "~"), (r"\&", "")):
        found = found.replace(escape, sign)
    return found.replace(r"\e", "\\")


def test_every_command_has_a_page(pages: dict[str, str]) -> None:
    assert {f"vgpu-{name}.1" for name in COMMANDS} <= pages.keys()
    assert {"vgpu.1", "vgpud.8", "vgpud-serve.8", "vgpu-queue-ls.1", "vgpu-slice-set.1"} <= pages.keys()


@pytest.mark.parametrize("path", ["run", "slice set", "backup", "queue", ""])
def test_a_page_says_what_the_help_says(pages: dict[str, str], path: str) -> None:
    command: click.Command = cli
    ctx = click.Context(cli, info_name="vgpu", **cli.context_settings)
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, name)
        assert found
        command, ctx = found, click.Context(found, info_name=name, parent=ctx, **found.context_settings)
    own = command.get_help(ctx) if not path else command.get_help(ctx).partition("\nGlobal options:")[0]
    shown = set(words(plain(pages["-".join(["vgpu", *path.split()]) + ".1"])))
    missing = [word for word in words(own) if word not in shown]
    assert not [word for word in missing if word not in {"Usage", "Options", "Commands", "Global", "options"}], missing


def test_the_global_options_are_in_the_page_of_vgpu_alone(pages: dict[str, str]) -> None:
    assert r"\-\-no\-headers" in pages["vgpu.1"] and "vgpu (1)" in pages["vgpu-run.1"]
    assert r"\-\-no\-headers" not in pages["vgpu-run.1"]


def test_roff_is_valid(pages: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff here: apt-get install groff-base")
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    command = ["groff", "-man", "-ww", "-Tutf8", "-z", *sorted(str(tmp_path / name) for name in pages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_texts_that_are_roff_are_printed_as_they_are() -> None:
    text = ".PP is no request, \\fB no font, 'quoted' `code`"
    assert plain(man_pages._quote_roff(text)) == text
    assert man_pages._quote_roff(text).startswith(r"\&.PP is no request, \efB")
