"""Manual pages of all commands, made of what `--help` says: `tools/man_pages.py DIRECTORY` writes vgpu.1 and so on.

A page for each command of `vgpu` and `vgpud`, from the same click commands that print the help, so that nothing is
written twice. Our commands are imported when they are called, and their examples are blocks that are not filled: the
packages that make such pages of click commands know neither.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import vgpud  # noqa: E402
from vgpud import serve  # noqa: E402
from vgpud.cli.common.options import global_names  # noqa: E402
from vgpud.cli.main import cli  # noqa: E402
from vgpud.k8s.main import main as k8s  # noqa: E402
from vgpud.kubectl.main import main as kubectl  # noqa: E402
from vgpud.project.addresses import describe_addresses  # noqa: E402

#: program -> (its command, the manual's section: 1 for users, 8 for administrators)
PROGRAMS: dict[str, tuple[click.Command, int]] = {
    "vgpu": (cli, 1),
    "kubectl-vgpu": (kubectl, 1),
    "vgpud": (serve.main, 8),
    "vgpud-k8s": (k8s, 8),
}


def _quote_roff(text: str) -> str:
    """A text that roff prints as it is: no requests, escapes, or hyphens of another kind."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^\.", "\\\\&.", text.replace("^", "\\(ha").replace("~", "\\(ti"), flags=re.MULTILINE)


def _paragraphs(text: str) -> Iterator[str]:
    """Those of a help text; one that click does not fill (\\b) stays in its lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", cleandoc(text).strip())):
        if number:
            yield ".PP"
        head, _, rest = paragraph.partition("\n")
        yield f".nf\n{_quote_roff(rest)}\n.fi" if head.strip() == "\b" else _quote_roff(paragraph.replace("\n", " "))


def _items(rows: list[tuple[str, str]]) -> Iterator[str]:
    for term, text in rows:
        yield f".TP\n.B {_quote_roff(term)}\n{_quote_roff(' '.join(text.split()))}"


def _options(ctx: click.Context) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """A command's own options, and the global ones; (term, text) each."""
    shared = global_names()
    own: list[tuple[str, str]] = []
    globals_: list[tuple[str, str]] = []
    for param in ctx.command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record:
            (globals_ if shared.issuperset(param.opts) else own).append(record)
    return own, globals_


def page(ctx: click.Context, section: int) -> str:
    """The manual page of one command."""
    command, path = ctx.command, ctx.command_path
    name, top = path.replace(" ", "-"), path.split()[0]
    own, globals_ = _options(ctx)
    is_top = path == top
    lines = [f'.TH {name.upper()} {section} "" "vgpud {vgpud.__version__}" "vgpud"', ".SH NAME"]
    lines += [f"{_quote_roff(name)} \\- {_quote_roff(command.get_short_help_str(200).rstrip('.'))}", ".SH SYNOPSIS"]
    lines += [f".B {_quote_roff(path)}", _quote_roff(" ".join(command.collect_usage_pieces(ctx)))]
    lines += [".SH DESCRIPTION", *_paragraphs(command.help or "")]
    if own:
        lines += [".SH OPTIONS", *_items(own)]
    if globals_ and is_top:
        lines += [".SH GLOBAL OPTIONS", "They may stand before or after a command.", *_items(globals_)]
    if isinstance(command, click.Group):
        found = {each: command.get_command(ctx, each) for each in command.list_commands(ctx)}
        texts = {each: (f"{path} {each}", sub.get_short_help_str(200)) for each, sub in found.items() if sub}
        lines.append(".SH COMMANDS")
        for title, names in (getattr(command, "sections", None) or {"": list(texts)}).items():
            lines += [f".SS {_quote_roff(title)}"] if title else []
            lines += _items([texts[name] for name in names])
    addresses = describe_addresses()
    exits = (command.epilog or "").removesuffix(addresses).rstrip()
    if exits:
        lines += [".SH EXIT STATUS", *_paragraphs(exits)]
    if addresses and is_top:
        lines += [".SH REPORTING BUGS", *_paragraphs(addresses)]
    others = [other for other in PROGRAMS if other != top] if is_top else [top]
    others += [path.rpartition(" ")[0].replace(" ", "-")] if path.count(" ") > 1 else []
    others += [f"{name}-{each}" for each in command.list_commands(ctx)] if isinstance(command, click.Group) else []
    sections = {program: number for program, (_, number) in PROGRAMS.items()}
    lines += [".SH SEE ALSO", ",\n".join(f".BR {_quote_roff(o)} ({sections.get(o, section)})" for o in others)]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name -> text, of all commands."""
    found: dict[str, str] = {}

    def add(command: click.Command, name: str, section: int, parent: click.Context | None = None) -> None:
        ctx = click.Context(command, info_name=name, parent=parent, **command.context_settings)
        found[f"{ctx.command_path.replace(' ', '-')}.{section}"] = page(ctx, section)
        if isinstance(command, click.Group):
            for each in command.list_commands(ctx):
                sub = command.get_command(ctx, each)
                if sub and not sub.hidden:
                    add(sub, each, section, ctx)

    for name, (command, section) in PROGRAMS.items():
        add(command, name, section)
    return found


def main() -> None:
    """Writes the pages into the directory that the command line names."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (out / name).write_text(text)


if __name__ == "__main__":
    main()
