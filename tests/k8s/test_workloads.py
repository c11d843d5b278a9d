"""`vgpu claim --for`, and the page that shows it: what Kubernetes takes, and what Kubeflow's type keeps."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.k8s import control_plane as plane
from tests.k8s.charts import ROOT, template, wrong
from tests.k8s.control_plane import ControlPlane, control_plane
from vgpud.cli.main import cli
from vgpud.errors import CliError, ExitCode
from vgpud.k8s.core import workloads
from vgpud.k8s.core.names import FIXED_MILLI

PAGE = (ROOT / "docs" / "kubernetes-workloads.md").read_text()
#: fields of a pod, and of a container's resources, that Kubernetes has added since 1.24
NEWER = {"resourceClaims", "claims", "schedulingGates", "hostUsers", "resizePolicy"}
DEPLOYMENT = ("0.5", "--mem", "20G", "--for", "deployment", "--image", "x", "--name", "serve")

Object = dict[str, Any]


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["claim", *words])


def make_objects(*words: str) -> list[Object]:
    done = run(*words)
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def list_commands() -> list[tuple[str, str]]:
    """(command, what the page shows that it prints)."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    pairs = [part.partition("\n")[::2] for part in parts]
    return [pair for pair in pairs if pair[0].startswith("vgpu claim") and pair[1].strip()]


def fields_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from fields_of(one)


def test_the_page_shows_what_is_printed() -> None:
    assert len(list_commands()) == 2
    for command, output in list_commands():
        done = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert done.exit_code == 0 and done.output.strip() == output.strip()


def test_a_deployment_is_of_kubernetes_and_fits_together() -> None:
    claim, deployment, service = make_objects(*DEPLOYMENT, "--port", "8000", "--replicas", "3")
    assert [one["kind"] for one in (claim, deployment, service)] == ["ResourceClaimTemplate", "Deployment", "Service"]
    assert [wrong(one) for one in (claim, deployment, service)] == [[], [], []]
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    assert spec["replicas"] == 3
    assert pod["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": claim["metadata"]["name"]}]
    (container,) = pod["containers"]
    assert container["resources"]["claims"] == [{"name": "gpu"}]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["containerPort"] == 8000


def test_a_template_is_the_same_without_what_uses_it() -> None:
    (alone,) = make_objects("0.5", "--mem", "20G", "--template", "--name", "serve")
    assert make_objects(*DEPLOYMENT)[0] == alone


@pytest.mark.parametrize("gpus", ["0.1", "0.25", "0.5", "1"])
def test_a_notebook_has_only_what_its_type_keeps(gpus: str) -> None:
    (notebook,) = make_objects(gpus, "--for", "notebook", "--image", "x", "--name", "lab")
    assert (notebook["apiVersion"], notebook["kind"]) == ("kubeflow.org/v1", "Notebook")
    assert not NEWER & set(fields_of(notebook)), "the server would drop it, and the notebook have no GPU"
    pod = notebook["spec"]["template"]["spec"]
    assert not wrong({"apiVersion": "v1", "kind": "Pod", "metadata": notebook["metadata"], "spec": pod})
    assert pod["containers"][0]["name"] == notebook["metadata"]["name"], "by which it is known"
    ((resource, count),) = pod["containers"][0]["resources"]["limits"].items()
    classes = [one for one in yaml.safe_load_all(template()) if one and one["kind"] == "DeviceClass"]
    by_name = {one["spec"]["extendedResourceName"] for one in classes if "extendedResourceName" in one["spec"]}
    by_class = {f"deviceclass.resource.kubernetes.io/{one['metadata']['name']}" for one in classes}
    assert resource in (by_name if gpus != "1" else by_class) and count == "1"


def test_fixed_parts_are_those_of_the_driver() -> None:
    assert [workloads.limit_of(milli) for milli in FIXED_MILLI.values()] == [f"vgpu.dev/{name}" for name in FIXED_MILLI]
    assert workloads.limit_of(300) is workloads.limit_of(2000) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("0.3", "--for", "notebook", "--image", "x"), "0.1, 0.25, 0.5 or 1, and 0.3 is none"),
        (("0.5", "--mem", "4G", "--for", "notebook", "--image", "x"), "which has no --mem"),
        (("0.5", "--max", "1", "--for", "notebook", "--image", "x"), "which has no --max"),
        (("0.5", "--for", "notebook", "--image", "x", "--port", "80"), "--port is for --for deployment"),
        (("0.5", "--for", "notebook", "--image", "x", "--replicas", "2"), "--replicas is for --for deployment"),
        (("0.5", "--for", "notebook"), "--for notebook needs --image"),
        (("0.5", "--mem", "4G", "--image", "x"), "--image is for what uses the claim"),
        ((*DEPLOYMENT, "--name", "Serve_1"), "'Serve_1' is no name of a Service"),
        ((*DEPLOYMENT, "--name", "s" * 53), "is no name of a Service"),
    ],
)
def test_what_does_not_go_together(words: tuple[str, ...], sentence: str) -> None:
    error = run(*words).exception
    assert isinstance(error, CliError) and error.exit_code == ExitCode.USAGE
    assert sentence in error.message and "\n" not in error.message


# ---- a real API server, where there is one ----


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if plane.missing():
        pytest.skip(plane.missing())
    with control_plane(tmp_path_factory.mktemp("plane")) as one:
        one.apply(template(namespace="default"))
        yield one


def test_a_real_server_takes_a_deployment(api: ControlPlane) -> None:
    for one in make_objects(*DEPLOYMENT, "--name", f"serve-{time.monotonic_ns() % 10**9}"):
        kept = api.create(one)
        assert kept["spec"].keys() >= one["spec"].keys()
