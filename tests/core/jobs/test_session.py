"""Sessions: how their programs are started, and shown their token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vgpud.core.jobs import session

#: a program that says what it was started with
PROGRAM = """#!{python}
import json, os, sys
files = [open(word).read() for before, word in zip(sys.argv, sys.argv[1:]) if before == "--connection-token-file"]
modes = [os.stat(word).st_mode & 0o777 for before, word in zip(sys.argv, sys.argv[1:]) if "token-file" in before]
print(json.dumps([sys.argv[1:], os.environ.get("JUPYTER_TOKEN"), files, modes]))
"""


def run(tmp_path: Path, *command: str) -> tuple[list[str], str | None, list[str], list[int]]:
    for name in ("jupyter", "code"):
        (tmp_path / name).write_text(PROGRAM.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    env |= {session.PORT: "20001", session.BASE: "/session/7/", session.TOKEN: "secret"}
    words = session.complete_command(command)
    done = subprocess.run(words, env=env, capture_output=True, check=True)
    found: tuple[list[str], str | None, list[str], list[int]] = json.loads(done.stdout)
    assert "secret" not in " ".join([*words, *found[0]])
    return found


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ((), ["lab"]),
        (("notebook",), ["notebook"]),
        (("--x=a b",), ["lab", "--x=a b"]),
        (("server", "-y"), ["server", "-y"]),
    ],
)
def test_jupyter(tmp_path: Path, arguments: tuple[str, ...], first: list[str]) -> None:
    words, token, _, _ = run(tmp_path, "jupyter", *arguments)
    assert words[: len(first)] == first and token == "secret"  # noqa: S105
    assert {"--ServerApp.ip=127.0.0.1", "--ServerApp.port=20001", "--ServerApp.base_url=/session/7/"} <= set(words)


def test_code(tmp_path: Path) -> None:
    words, _, files, modes = run(tmp_path, "code", "--accept-server-license-terms")
    assert words[:7] == ["serve-web", "--host", "127.0.0.1", "--port", "20001", "--server-base-path", "/session/7/"]
    assert words[-1] == "--accept-server-license-terms" and (files, modes) == (["secret"], [0o600])


def test_any_other_program_is_started_as_it_is() -> None:
    assert session.complete_command(("./serve", "a b")) == ("./serve", "a b")
    assert [session.program_of((word,)) for word in ("jupyter", "code", "./code")] == ["jupyter", "code", "web"]


@pytest.mark.parametrize(
    ("program", "header", "query"),
    [
        ("jupyter", ("authorization", "token t"), "token=t"),
        ("code", ("cookie", "vscode-tkn=t"), "tkn=t"),
        ("web", ("authorization", "Bearer t"), "token=t"),
    ],
)
def test_tokens_are_shown(program: str, header: tuple[str, str], query: str) -> None:
    assert session.present_token(program, "t") == header
    assert session.direct_url(program, 7, 20001, "t") == f"http://127.0.0.1:20001/session/7/?{query}"
