"""The options of `vgpu submit` for a site's environment, and for what a job's container is given of the node."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.completions import complete_environment
from vgpud.cli.common.options import Settings
from vgpud.cli.common.quantities import AnyParam
from vgpud.core.jobs.container_parts import PartError, parse_port, parse_registry, parse_volume

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("environment", "volumes", "ports", "registry_auth")


class Part(AnyParam):
    """A volume, a port or credentials, by the function that reads it; a path may begin at the working directory."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text.startswith(("./", "../")):
            path, colon, rest = text.partition(":")
            text = f"{os.path.abspath(path)}{colon}{rest}"
        try:
            self._parse(text)
        except PartError as error:
            self.fail(str(error), param, ctx)
        return text


environment_option = click.option(
    "-E",
    "--environment",
    metavar="NAME",
    shell_complete=complete_environment,
    help="One of the site's environments (`vgpu env ls`): its image, command and defaults.",
)


volume_option = click.option(
    "--volume",
    "volumes",
    type=Part("volume", parse_volume),
    multiple=True,
    metavar="HOST:DIR[:ro]",
    help="Give the container this directory of the node, where the site allows it; repeatable.",
)
registry_option = click.option(
    "--registry-auth",
    type=Part("registry", parse_registry),
    metavar="NAME|FILE",
    help="Credentials to pull the image: the site's by name, or your file, such as ~/.docker/config.json.",
)
_port_option = click.option(
    "--port",
    "ports",
    type=Part("port", parse_port),
    multiple=True,
    metavar="[HOST:]PORT",
    help="Publish this port of the container on the node, where the site allows it; repeatable.",
)


def container_options(function: F) -> F:
    """--environment, --volume, --port and --registry-auth."""
    for option in (registry_option, _port_option, volume_option, environment_option):
        function = option(function)
    return function


def find_environment(settings: Settings, name: str | None) -> pb.Environment | None:
    """The environment of this name; None for none. Raises CliError where the caller has none of that name."""
    if not name:
        return None
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.errors import CliError, ExitCode

    with Client(settings) as client:
        answer = client.send(calls.environments())
    found = next((one for one in answer.environments if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in answer.environments)
        have = f"there are {names}" if names else "this site has none for you"
        raise CliError(f"no environment {name!r}: {have} (`vgpu env ls`)", ExitCode.NOT_FOUND)
    return found


def fill_parts(spec: pb.JobSpec, option_values: Mapping[str, Any]) -> None:
    """Sets the message's fields of these options."""
    spec.environment_name = option_values.get("environment") or ""
    spec.volumes.extend(option_values.get("volumes") or ())
    spec.ports.extend(option_values.get("ports") or ())
    spec.registry = option_values.get("registry_auth") or ""
