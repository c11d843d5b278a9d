"""The release before this one, from git: for tests of upgrades and of the way back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.tree import ROOT
from vgpud.store.database import MIGRATIONS

#: how many changes of the database are looked at for one with an older version
CHANGES_MAX = 20


def git(*words: str) -> bytes:
    """What a command of git prints, nothing if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


def versions_of(commit: str) -> int:
    """How many entries MIGRATIONS has in a commit: each begins or is a tuple in four columns, or a name."""
    source = git("show", f"{commit}:vgpud/store/database.py").decode()
    body = source.partition("\nMIGRATIONS")[2].partition("= (\n")[2].partition("\n)\n")[0]
    return len(re.findall(r"^    (?:\(|[a-z])", body, re.MULTILINE))


def older_commit() -> str:
    """The tag before this one, else the commit before the last change of the database's version; "" in a shallow
    clone."""
    tag = git("describe", "--tags", "--abbrev=0", "HEAD^").decode().strip()
    changes = git("log", f"-{CHANGES_MAX}", "--format=%H", "--", "vgpud/store/database.py").decode().split()
    return tag or next((f"{one}^" for one in changes if 0 < versions_of(f"{one}^") < len(MIGRATIONS)), "")


class Sources:
    """The sources of one vgpud, whose programs run in processes of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = os.environ | {"PYTHONPATH": str(directory)}

    def start(self, *words: object, output: Path) -> subprocess.Popen[bytes]:
        """Starts an interpreter whose output is appended to a file."""
        command = [sys.executable, *map(str, words)]
        with output.open("ab") as out:
            return subprocess.Popen(command, cwd="/", env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def run(self, *words: object, code: int = 0) -> str:
        """What an interpreter prints, which must end with this code."""
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(command, cwd="/", env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return (done.stdout + done.stderr).strip()


def older_sources(directory: Path, *parts: str) -> Sources:
    """Those of the release before in a directory; `parts`: only these folders. Skips the test where git has none."""
    commit = older_commit()
    if not commit:
        pytest.skip("no older vgpud in this clone: git fetch --unshallow --tags")
    subprocess.run(["tar", "-x", "-C", directory], input=git("archive", "--format=tar", commit, *parts), check=True)
    return Sources(directory)
