"""Global options, before or after a command's name: output format, host, colour, deadline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from vgpud.cli.common.quantities import Number

FORMATS = ("table", "json", "yaml", "name")
#: width of help texts on a terminal that is not narrower
_HELP_CELLS = 80


@dataclass
class Settings:
    """Values of the global options; `ctx.obj` of every command."""

    output: str = "table"
    host: str | None = None  # None: the default of vgpud.paths
    headers: bool = True
    color: bool = field(default_factory=lambda: not os.environ.get("NO_COLOR"))
    timeout_s: float = 10.0
    is_stream: bool = False  # several answers, one below the other: json has one line for each


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value is not None and param.name:
        setattr(settings, param.name, value)


def _global_options() -> list[click.Option]:
    def option(*names: str, **attributes: Any) -> click.Option:
        return click.Option(list(names), expose_value=False, callback=_store, default=None, **attributes)

    return [
        option("-o", "--output", type=click.Choice(FORMATS), help="Output format (default: table)."),
        option(
            "--host",
            metavar="TARGET",
            help="The daemon: unix:///PATH or HOST:PORT (also VGPU_HOST; default: the context's, or this machine's).",
        ),
        option("--no-headers", "headers", is_flag=True, flag_value=False, help="Print tables without headers."),
        option("--no-color", "color", is_flag=True, flag_value=False, help="Print without colours (also NO_COLOR=1)."),
        option(
            "--timeout",
            "timeout_s",
            type=Number(0, 31_536_000, min_open=True),
            metavar="SECONDS",
            help="Seconds to wait for the daemon's answer (default: 10).",
        ),
    ]


def global_names() -> set[str]:
    """The spellings of the global options."""
    return {name for option in _global_options() for name in option.opts}


class _WithGlobals(click.Command):
    """Adds the global options that the command does not redefine, in a section below its own options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        taken = {name for param in self.params for name in param.opts}
        self._globals = [option for option in _global_options() if not taken.intersection(option.opts)]
        self.params.extend(self._globals)

    @property
    def own_params(self) -> list[click.Parameter]:
        """Without the global options."""
        return [param for param in self.params if param not in self._globals]

    def read_globals(self, ctx: click.Context, args: Sequence[str]) -> None:
        """Takes the global options of a command line over before the rest of it is read. Raises UsageError."""
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        for option in self._globals:
            option.handle_parse_result(ctx, values, [])

    def get_help(self, ctx: click.Context) -> str:
        """The help; also examples, which click never breaks, keep within the width of the terminal."""
        import shutil

        from vgpud.view.fit import INDENT_CELLS, wrap_text

        width = min(_HELP_CELLS, shutil.get_terminal_size((_HELP_CELLS, 24)).columns)
        lines: list[str] = []
        for line in super().get_help(ctx).split("\n"):
            indent = len(line) - len(line.lstrip()) + INDENT_CELLS
            lines += wrap_text(line, width, " " * indent) if len(line) > width else [line]
        return "\n".join(lines)

    def option_sections(self, ctx: click.Context) -> list[tuple[str, list[click.Parameter]]]:
        """(title, options) of the help, without the global ones."""
        return [("Options", [p for p in self.get_params(ctx) if p not in self._globals])]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = [*self.option_sections(ctx), ("Global options", list[click.Parameter](self._globals))]
        for title, params in sections:
            records = [r for r in (p.get_help_record(ctx) for p in params) if r is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class VgpuCommand(_WithGlobals):
    """A command of `vgpu`. `sections`: title -> names of the options that its help shows below it; others come last."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}

    def option_sections(self, ctx: click.Context) -> list[tuple[str, list[click.Parameter]]]:
        ((title, own),) = super().option_sections(ctx)
        found = [(name, [p for p in own if p.name in names]) for name, names in self.sections.items()]
        placed = [param for _, params in found for param in params]
        return [*found, ("Other options" if found else title, [param for param in own if param not in placed])]


class LazyGroup(_WithGlobals, click.Group):
    """A group whose commands are imported when they are invoked.

    lazy: name -> (module:attribute, one-line help).
    sections: title -> commands that the help shows below it; without any all are below "Commands".
    old_names: old name -> (module:attribute, the command line that replaces it). No help or completion shows these.
    words_of_others: a command of other programs -> what is written here, shown when a user tries it.
    """

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, tuple[str, str]] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        old_names: Mapping[str, tuple[str, str]] | None = None,
        words_of_others: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}
        self.sections = sections or {}
        self.old_names = old_names or {}
        self.words_of_others = words_of_others or {}
        self.command_class = VgpuCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place, _ = self.lazy.get(cmd_name) or self.old_names.get(cmd_name) or ("", "")
        if not place:
            return super().get_command(ctx, cmd_name)
        import importlib

        module, _, path = place.partition(":")
        names = path.split(".")
        command: Any = getattr(importlib.import_module(module), names[0])
        for name in names[1:]:  # a command of that group
            command = command.commands[name]
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.old_names and not ctx.resilient_parsing:
            old_path, new_path = f"{ctx.command_path} {name}", self.old_names[name][1]
            click.echo(f"vgpu: `{old_path}` goes away with the next release: use `{new_path}`", err=True)
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        from vgpud.cli.common.suggestions import hint

        others = self.words_of_others.get(name)
        suggestions = others or [f"`{ctx.command_path} {path}`" for path in self._resembling(ctx, name)]
        raise click.UsageError(f"No such command {name!r}{hint(suggestions)}", ctx)

    def _resembling(self, ctx: click.Context, name: str) -> list[str]:
        """Commands that a mistyped name may stand for: one of this name in a group, or else those spelt like it."""
        from vgpud.cli.common.suggestions import resemble

        groups = {each: self.get_command(ctx, each) for each in self.list_commands(ctx)}
        below = [f"{each} {name}" for each, g in groups.items() if isinstance(g, click.Group) and name in g.commands]
        return below or resemble(name, groups)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _WithGlobals.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: text for name, (_, text) in self.lazy.items()}
        rows |= {name: command.get_short_help_str(90) for name, command in self.commands.items()}
        for title, names in (self.sections or {"Commands": list(rows)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, rows[name]) for name in names])


pass_settings = click.make_pass_decorator(Settings, ensure=True)
