"""`vgpu docs`: the documents of this version, without a browser and without a network."""

from __future__ import annotations

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings

#: cells of a line of text on a wide terminal: longer ones are hard to read
_CELLS_MAX = 110


def complete_page(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of pages with this prefix."""
    from vgpud.project.documents import list_pages

    return [page.name for page in list_pages() if page.name.startswith(incomplete)]


@click.command("docs", cls=VgpuCommand, short_help="List the documents of this version, or read one.")
@click.argument("page_name", metavar="[PAGE]", required=False, shell_complete=complete_page)
@pass_settings
def docs(settings: Settings, page_name: str | None) -> None:
    """List the documents of this version, or read one: `vgpu docs limits`.

    PAGE is a name of the list. What a message or a link names works as well: docs/limits.md. On a terminal the page
    is laid out and shown by the pager ($PAGER); into a pipe or a file its Markdown is written as it is.
    """
    from vgpud.cli.common.output import dump, emit
    from vgpud.cli.common.suggestions import hint, resemble
    from vgpud.errors import CliError, ExitCode
    from vgpud.project.documents import find_page, list_pages
    from vgpud.view.fit import Grid

    pages = list_pages()
    if not pages:
        raise CliError("this installation has no documents: install vgpud from its wheel, or by `pip install .`")
    if page_name is None:
        data = {"pages": [{"name": page.name, "title": page.title} for page in pages]}
        rows = [(page.name, page.title) for page in pages]
        emit(settings, data, [page.name for page in pages], lambda: Grid(("PAGE", "TITLE"), list(rows)))
        return
    page = find_page(page_name, pages)
    if page is None:
        by_end = {_end_of(each.name): each.name for each in reversed(pages)}
        near = [f"`vgpu docs {by_end[end]}`" for end in resemble(_end_of(page_name).lower(), by_end)]
        raise CliError(f"no document {page_name!r}{hint(near) or ': `vgpu docs` lists them'}", ExitCode.USAGE)
    if settings.output in ("table", "name"):
        _show(settings, page.read())
    else:
        dump(settings, {"name": page.name, "title": page.title, "text": page.read()})


def _end_of(name: str) -> str:
    """The last word of a page's name or of a link to it."""
    return name.partition("#")[0].rpartition("/")[2].removesuffix(".md")


def _show(settings: Settings, text: str) -> None:
    import sys

    from vgpud.cli.common.output import width_of

    width = width_of(sys.stdout)
    if width is None:
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    # no backgrounds: rich's are black, and the terminal may be white
    theme = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
    console = Console(width=min(width, _CELLS_MAX), force_terminal=True, no_color=not settings.color, theme=theme)
    with console.capture() as capture:
        console.print(Markdown(text, code_theme="ansi_light", hyperlinks=False))
    click.echo_via_pager(capture.get())
