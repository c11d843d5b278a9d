"""The command `kubectl-vgpu`, which kubectl finds as `kubectl vgpu`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from vgpud import __version__
from vgpud.cli.common.options import FORMATS, Settings
from vgpud.cli.common.output import emit
from vgpud.errors import CliError, ExitCode, VgpudError
from vgpud.kubectl import pods
from vgpud.kubectl.api import Kubectl
from vgpud.view.fit import Grid
from vgpud.view.text import plain

_DRIVER_PODS = "app.kubernetes.io/name=vgpud,app.kubernetes.io/component=driver"
#: of GPUs with free capacity, and of Events, that `explain` shows
_SHOWN = 5


class _Group(click.Group):
    """Turns our exceptions into one line and their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except VgpudError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(int(error.exit_code))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Slices of GPUs that a cluster's pods have, by the pods' names.

    It asks the API server by kubectl, which must be in PATH, and sees what the user of the context may see.
    """


def _with_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options by which kubectl finds a cluster and a namespace. The command gets them as its first arguments."""

    @click.option("-n", "--namespace", default="", metavar="NAMESPACE", help="Of the pod (default: the context's).")
    @click.option("--context", metavar="NAME", help="Of the kubeconfig.")
    @click.option("--kubeconfig", metavar="FILE", help="As for kubectl.")
    @functools.wraps(command)
    def call(namespace: str, context: str | None, kubeconfig: str | None, **other_options: Any) -> None:
        given = {"--context": context, "--kubeconfig": kubeconfig}
        command(Kubectl(tuple(f"{name}={value}" for name, value in given.items() if value)), namespace, **other_options)

    return call


def _list_claims(kubectl: Kubectl, namespace: str) -> list[dict[str, Any]]:
    return kubectl.list_items("resourceclaims.resource.k8s.io", namespace=namespace)


@main.command("slices")
@click.argument("pod", default="")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@click.option("-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format.")
@_with_cluster_options
def slices(kubectl: Kubectl, namespace: str, *, pod: str, all_namespaces: bool, output: str) -> None:
    """Show what claims have: of a POD, or of all in the namespace."""
    found = pods.slices_of(_list_claims(kubectl, "*" if all_namespaces else namespace))
    if pod:
        found = [one for one in found if pod in one.pods]
    titles = ("NAMESPACE", "POD", "CLAIM", "NODE", "DEVICE", ">SM", ">MEMORY", "SLICE")
    grid = Grid(titles, first_to_go=("SLICE", "CLAIM"))
    for one in found:
        who = ",".join(one.pods) or "-"
        cells = (one.namespace, who, one.claim, one.node, one.device, one.sm, one.memory, one.name)
        grid.rows.append([plain(text) for text in cells])
    keys = ("namespace", "pods", "claim", "slice", "node", "device", "sm", "memory")
    values = [(o.namespace, list(o.pods), o.claim, o.name, o.node, o.device, o.sm, o.memory) for o in found]
    rows = [dict(zip(keys, row, strict=True)) for row in values]
    emit(Settings(output=output), {"slices": rows}, [one.name for one in found], lambda: grid)


@main.command("resize", context_settings={"ignore_unknown_options": True})
@click.argument("pod")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="--max 1 --min 0.25 ...")
@click.option("--claim", metavar="NAME", help="Which claim of the pod, where it has several.")
@click.option(
    "--driver-namespace", default="vgpu-system", show_default=True, metavar="NAMESPACE", help="Where the chart is."
)
@_with_cluster_options
def resize(
    kubectl: Kubectl, namespace: str, *, pod: str, changes: tuple[str, ...], claim: str | None, driver_namespace: str
) -> None:
    """Change the slice of a POD while it runs, by the options of `vgpu slice set`.

    It runs that command in the driver's pod on the node, which needs the right to exec there.
    """
    if not changes:
        raise click.UsageError("specify a change: for example --max 0.8")
    found = kubectl.get("pod", pod, namespace=namespace)
    metadata = found["metadata"]
    names = set(filter(None, pods.claims_of(found).values()))
    objects = [one for one in _list_claims(kubectl, metadata["namespace"]) if one["metadata"]["name"] in names]
    made = {one.claim: one for one in pods.slices_of(objects) if claim in (None, one.claim)}
    if not made:
        text = f"pod {pod} has no slice" + (f" of claim {claim}" if claim else "")
        raise CliError(f"{text}: `kubectl vgpu explain {pod}` says why", ExitCode.NOT_FOUND)
    if len(made) > 1:
        raise CliError(f"pod {pod} has several claims: add --claim {' or --claim '.join(sorted(made))}", ExitCode.USAGE)
    (wanted,) = made.values()
    said = _run_on_node(kubectl, driver_namespace, wanted.node, ["slice", "set", wanted.name, *changes])
    for line in said.splitlines():
        click.echo(plain(line))


def _run_on_node(kubectl: Kubectl, namespace: str, node: str, words: list[str]) -> str:
    """What `vgpu` says in the driver's pod on that node. namespace: the chart's, since any user may label a pod as the
    driver's in their own."""
    selected = ("-l", _DRIVER_PODS, f"--field-selector=spec.nodeName={node},status.phase=Running")
    found = kubectl.list_items("pods", *selected, namespace=namespace)
    if not found:
        text = f"no pod of the driver runs on node {node} in namespace {namespace}"
        raise CliError(f"{text}: name another --driver-namespace", ExitCode.NOT_FOUND)
    metadata, (container,) = found[0]["metadata"], found[0]["spec"]["containers"][:1]
    socket = next((word.partition("=")[2] for word in container.get("args", []) if word.startswith("--socket=")), "")
    host = ["--host", f"unix://{socket}"] if socket else []
    return kubectl.execute(metadata["name"], metadata["namespace"], container["name"], ["vgpu", *host, *words])


@main.command("explain")
@click.argument("pod")
@_with_cluster_options
def explain(kubectl: Kubectl, namespace: str, *, pod: str) -> None:
    """Say what a POD asked for, what it has, or why it waits."""
    found = kubectl.get("pod", pod, namespace=namespace)
    metadata, names = found["metadata"], pods.claims_of(found)
    lines = [f"pod {metadata['namespace']}/{metadata['name']}: {pods.state_of(found)}"]
    there = {one["metadata"]["name"]: one for one in _list_claims(kubectl, metadata["namespace"])}
    prepared = pods.slices_of(there.values())
    uids, waits = [metadata["uid"]], False
    for use, name in names.items():
        claim = there.get(name)
        lines.append(f"claim {use}: {name or 'not made yet'}" + ("" if claim or not name else ", which is gone"))
        if claim is None:
            continue
        uids.append(claim["metadata"]["uid"])
        lines += [f"  asks {text}" for text in pods.requests_of(claim)]
        results = pods.results_of(claim)
        waits = waits or not results
        lines += [f"  allocated {one['device']} of {one['pool']}" for one in results] or ["  not allocated"]
        its = [one for one in prepared if one.claim == name]
        lines += [f"  has {one.sm} of the SM time and {one.memory} of {one.device} (slice {one.name})" for one in its]
    if not names:
        lines.append("it asks for no claim and no part of a GPU")
    for uid in uids:
        lines += _list_warnings(kubectl, metadata["namespace"], uid)
    if waits:
        lines += _list_free(kubectl)
    for text in lines:
        click.echo(plain(text))


def _list_warnings(kubectl: Kubectl, namespace: str, uid: str) -> list[str]:
    """The last Warnings about an object."""
    selected = f"--field-selector=involvedObject.uid={uid},type=Warning"
    found = kubectl.list_items("events", selected, namespace=namespace)
    found.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    return [f"warning {one.get('reason')}: {one.get('message')}" for one in found[-_SHOWN:]]


def _list_free(kubectl: Kubectl) -> list[str]:
    """Where capacity is, as far as the user may see that."""
    try:
        slices_, claims = kubectl.list_items("resourceslices.resource.k8s.io"), _list_claims(kubectl, "*")
    except CliError as error:
        return [f"free capacity is not known: {error.message}"]
    return ["GPUs with the most free:", *(f"  {line}" for line in pods.free_lines(slices_, claims, _SHOWN))]
