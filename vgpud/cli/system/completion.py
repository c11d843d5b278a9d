"""`vgpu completion SHELL`: the script that makes a shell complete commands, options and names."""

from __future__ import annotations

import click

from vgpud.cli.common.options import VgpuCommand


@click.command("completion", cls=VgpuCommand, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: echo 'eval "$(vgpu completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(vgpu completion zsh)"' >> ~/.zshrc
    fish: vgpu completion fish > ~/.config/fish/completions/vgpu.fish
    """
    from click.shell_completion import get_completion_class

    cli = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "vgpu", "_VGPU_COMPLETE").source())
