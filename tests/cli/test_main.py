"""The frame of the command line: what it imports, its help, global options, completion, colours."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from vgpud.cli.common.exits import EXIT_CODES
from vgpud.cli.common.options import LazyGroup, VgpuCommand
from vgpud.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("grpc", "google", "rich", "yaml", "asyncio", "pynvml", "vgpud._shim", "vgpud.cli.common.client")


def modules_after(code: str) -> set[str]:
    """Names of the modules that are loaded after running code in a fresh interpreter."""
    show = "import sys; print('\\n'.join(sys.modules), file=sys.__stderr__)"
    script = f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    {code}\n{show}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split("\n"))


@pytest.mark.parametrize(
    "args", [["--help"], ["run", "--help"], ["slice", "--help"], ["version", "--client", "-o", "json"]]
)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    loaded = modules_after(f"from vgpud.cli.main import invoke; invoke({args!r})")
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)


def test_a_missing_daemon_is_said_without_loading_grpc_calls(vgpu: Any, tmp_path: Path) -> None:
    """Commands against no daemon: the exit code is the documented one, whatever the format."""
    for output in ("table", "json", "yaml", "name"):
        result = vgpu("-o", output, "ps", host=f"unix://{tmp_path}/none.sock")
        assert (result.code, result.stdout) == (3, "")


def all_commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        if importlib.util.find_spec(COMMANDS[name][0].split(":")[0]) is None:
            continue  # another part's module, made later
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", command.commands[sub]) for sub in command.commands]
    return found


@pytest.mark.parametrize(("name", "command"), all_commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_takes_the_global_options_and_explains_itself(name: str, command: click.Command) -> None:
    assert isinstance(command, (VgpuCommand, LazyGroup)), name
    options = {opt for param in command.params for opt in param.opts}
    assert {"-o", "--host", "--no-headers", "--no-color", "--timeout"} <= options
    assert command.help
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{name} {param.opts} has no help"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_lazy_table_says_what_the_commands_say(name: str) -> None:
    module = COMMANDS[name][0].split(":")[0]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is another part's")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(200) == COMMANDS[name][1]


def groups() -> list[tuple[str, LazyGroup]]:
    return [("vgpu", cli), *((f"vgpu {name}", one) for name, one in all_commands() if isinstance(one, LazyGroup))]


RENAMED = [(group, path, name) for path, group in groups() for name in group.old_names]


@pytest.mark.parametrize(("group", "path", "name"), RENAMED, ids=[f"{path} {name}" for _, path, name in RENAMED])
def test_an_old_name_is_the_new_command_with_a_line(group: LazyGroup, path: str, name: str, vgpu: Any) -> None:
    new_path = group.old_names[name][1]
    command: Any = cli
    for word in new_path.split()[1:]:
        command = command.get_command(click.Context(command), word)
    assert group.get_command(click.Context(group), name) is command
    result = vgpu(*path.split()[1:], name, "--help")
    line = f"vgpu: `{path} {name}` goes away with the next release: use `{new_path}`"
    assert result.code == 0 and " ".join(result.stderr.split()).startswith(line)
    assert not re.search(rf"^  {name} ", vgpu(*path.split()[1:], "--help").stdout, re.MULTILINE)


def test_sections_of_options_name_options() -> None:
    for name, command in all_commands():
        if isinstance(command, VgpuCommand) and command.sections:
            named = [option for names in command.sections.values() for option in names]
            assert len(named) == len(set(named)) and set(named) <= {param.name for param in command.params}, name


def test_help_lists_commands_and_exit_codes(vgpu: Any) -> None:
    text = vgpu("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", text, re.M), name
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"^ +{int(code)}  {re.escape(meaning)}$", text, re.M), code
    assert "128+N" in text
    assert vgpu().code == 2
    assert "Jobs and queues:" in vgpu().stderr


def test_global_options_stand_before_or_after_the_command(vgpu: Any, daemon: Any) -> None:
    before = vgpu("-o", "name", "gpu", "ls", host=daemon.host).stdout
    between = vgpu("gpu", "-o", "name", "ls", host=daemon.host).stdout
    after = vgpu("gpu", "ls", "-o", "name", host=daemon.host).stdout
    assert before == between == after
    assert before.startswith("GPU-")
    assert vgpu("-o", "yaml", "gpu", "ls", "-o", "name", host=daemon.host).stdout == before


def test_vgpu_host_is_the_default_and_host_wins(
    vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VGPU_HOST", daemon.host)
    assert vgpu("version", "-o", "name").code == 0
    other = f"unix://{tmp_path}/other.sock"
    for args in (("--host", other, "version"), ("version", "--host", other)):
        assert "other.sock" in vgpu(*args).stderr


def test_colours_only_on_a_terminal_and_not_with_no_color(daemon: Any) -> None:
    import pty

    def on_a_terminal(*args: str, **env: str) -> str:
        command = [sys.executable, "-m", "vgpud.cli.main", "--host", daemon.host, *args]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(sys.executable, command, os.environ | {"TERM": "xterm-256color"} | env)
        text = b""
        try:
            while data := os.read(terminal, 4096):
                text += data
        except OSError:  # how Linux says that the other end of a terminal is closed
            pass
        os.waitpid(pid, 0)
        os.close(terminal)
        return text.decode()

    assert "\x1b[" in on_a_terminal("gpu", "ls")
    assert "\x1b[3" not in on_a_terminal("gpu", "ls", "--no-color")
    assert "\x1b[3" not in on_a_terminal("gpu", "ls", NO_COLOR="1")


def test_lines_are_not_broken_at_a_narrow_width(run_vgpu: Any, daemon: Any) -> None:
    wide = run_vgpu("gpu", "ls", host=daemon.host)
    narrow = run_vgpu("gpu", "ls", host=daemon.host, COLUMNS="20")
    assert wide.code == 0
    assert wide.stdout == narrow.stdout


def test_a_reader_that_leaves_is_no_traceback(daemon: Any) -> None:
    shell = f"{sys.executable} -m vgpud.cli.main --host {daemon.host} events -f | head -c 0; echo ${{PIPESTATUS[0]}}"
    daemon._tell("slice.created", "a", "x" * 100_000)
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.stdout == "1\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_vgpu(vgpu: Any, shell: str) -> None:
    result = vgpu("completion", shell)
    assert result.code == 0
    assert "_VGPU_COMPLETE" in result.stdout
    assert "vgpu" in result.stdout


def test_completion_names_commands_options_and_slices(run_vgpu: Any, vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "training", "--gpus", "0.5", host=daemon.host)

    def complete(words: str) -> list[str]:
        env = {
            "_VGPU_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            "VGPU_HOST": daemon.host,
        }
        return [line.partition(",")[2] for line in run_vgpu(**env).stdout.splitlines()]

    assert "doctor" in complete("vgpu do")
    assert "--gpus" in complete("vgpu run --g")
    assert complete("vgpu slice show tr") == ["training"]
    assert complete("vgpu run --slice tr") == ["training"]
    assert complete("vgpu run --class ") == ["batch", "latency"]
    assert complete("vgpu slice set training --class ") == ["batch", "latency", "default"]
    assert complete("vgpu slice set training --weight d") == ["default"]


def test_completion_without_a_daemon_is_silent(run_vgpu: Any, tmp_path: Path) -> None:
    env = {"_VGPU_COMPLETE": "bash_complete", "COMP_WORDS": "vgpu slice show x", "COMP_CWORD": "3"}
    result = run_vgpu(**env, VGPU_HOST=f"unix://{tmp_path}/none.sock")
    assert (result.stdout.strip(), result.stderr) == ("", "")


def test_the_documents_have_the_same_exit_codes() -> None:
    rows = re.findall(r"^\| `(\d+)` \| (.*) \|$", (ROOT / "docs/cli.md").read_text(), re.M)
    assert {int(code): text for code, text in rows} == {int(code): text for code, text in EXIT_CODES.items()}


def test_a_fault_of_ours_is_one_line_and_can_be_looked_at(vgpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("vgpud.cli.system.checks.all_findings", broken)
    result = vgpu("doctor")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == (
        "vgpu: internal error: ZeroDivisionError: of ours; VGPU_DEBUG=1 prints a traceback, please report it\n"
    )
    monkeypatch.setenv("VGPU_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        vgpu("doctor")
