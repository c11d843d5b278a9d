"""docs/kubernetes.md and deploy/kueue: manifests are what Kubernetes takes, quoted sentences are the code's."""

from __future__ import annotations

import ast
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from lightkube import ApiError

from tests.daemon.node import wait_until
from tests.k8s import control_plane as plane
from tests.k8s.charts import CHART, ROOT, VERSION, helm, template, wrong
from tests.k8s.control_plane import ControlPlane, control_plane
from vgpud import config as configuration
from vgpud.cli.main import cli
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.k8s.core.model import Asked, Gpu, Granted, Result, Words
from vgpud.k8s.core.names import CAPACITIES, DRIVER, FIXED_MILLI, TAINT_DRAINED, TAINT_FAULTY, TAINT_TAKEN
from vgpud.k8s.core.published import Policy, changes, specs
from vgpud.k8s.core.quantities import parse_quantity
from vgpud.k8s.core.slice_config import words_of
from vgpud.k8s.core.status import news
from vgpud.k8s.driver import add_condition_times

DOCUMENT = (ROOT / "docs" / "kubernetes.md").read_text()
KUEUE = sorted((ROOT / "deploy" / "kueue").glob("*.yaml"))
#: resources that Kubernetes has no types of
FOREIGN = {"Configuration", "ResourceFlavor", "ClusterQueue", "LocalQueue"}
#: resources that the server of a test may not have yet: of Kubernetes 1.37
LATER = {"DeviceTaintRule"}
MIB = 1 << 20

Object = dict[str, Any]


def blocks(language: str) -> list[str]:
    """The document's blocks in a language, without the indentation of a list that they are in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    return ["\n".join(line[len(space) :] for line in text.split("\n")) for space, text in found]


def commands() -> list[tuple[str, str]]:
    """(command, what it prints as shown) of all `vgpu claim` in the consoles."""
    parts = [part for block in blocks("console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    pairs = [part.partition("\n")[::2] for part in parts]
    return [(command, shown) for command, shown in pairs if command.startswith("vgpu claim")]


def documents(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]


def objects() -> list[Object]:
    """All objects of Kubernetes that the documents show."""
    texts = [*blocks("yaml"), *(shown for _, shown in commands()), *(path.read_text() for path in KUEUE)]
    found = [one for text in texts for one in documents(text) if "kind" in one]
    return [one for one in found if one["kind"] not in FOREIGN]


def name_of(one: Object) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"


def requests(one: Object) -> list[Object]:
    """The capacities asked for by a claim or a template, one mapping for each request."""
    spec = one["spec"].get("spec", one["spec"])
    exactly = [r["exactly"] for r in spec["devices"]["requests"]]
    return [one["capacity"]["requests"] for one in exactly if "capacity" in one]


def test_there_is_something_to_check() -> None:
    object_kinds = {one["kind"] for one in objects()}
    assert object_kinds == {
        "ResourceClaim",
        "ResourceClaimTemplate",
        "Pod",
        "Deployment",
        "DaemonSet",
        "Job",
        "DeviceClass",
        "DeviceTaintRule",
        "Namespace",
        "ResourceQuota",
    }
    assert len(commands()) == 3 and len(KUEUE) == 3


@pytest.mark.parametrize(("command", "output"), commands(), ids=[command for command, _ in commands()])
def test_vgpu_claim_prints_what_is_shown(command: str, output: str) -> None:
    done = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert done.exit_code == 0 and done.output.strip() == output.strip()


@pytest.mark.parametrize("one", objects(), ids=name_of)
def test_objects_are_those_of_kubernetes(one: Object) -> None:
    assert not wrong(one)


@pytest.mark.parametrize("one", [o for o in objects() if "Claim" in o["kind"]], ids=name_of)
def test_amounts_fit_together(one: Object) -> None:
    """As the chart's policy has them."""
    for asked in requests(one):
        assert asked.keys() <= set(CAPACITIES)
        amounts = {name: parse_quantity(value) for name, value in asked.items()}
        assert 0 < amounts["sm"] <= MILLI_PER_DEVICE and amounts["memory"] >= MIB
        assert amounts.get("smMax", MILLI_PER_DEVICE) >= amounts["sm"]
        assert amounts.get("memoryMax", amounts["memory"]) >= amounts["memory"]


def test_pods_name_claims_that_are_shown() -> None:
    there = {one["metadata"]["name"] for one in objects() if "Claim" in one["kind"]}
    for one in objects():
        if one["kind"] in ("Pod", "Deployment", "DaemonSet", "Job"):
            pod = one["spec"] if one["kind"] == "Pod" else one["spec"]["template"]["spec"]
            claims = {c["name"]: c for c in pod.get("resourceClaims", [])}
            named = {value for c in claims.values() for key, value in c.items() if key != "name"}
            assert named <= there, one
            used = {c["name"] for box in pod["containers"] for c in box["resources"].get("claims", [])}
            assert used == set(claims), one


def test_fixed_parts_are_those_that_are_published() -> None:
    named = set(re.findall(r"vgpu\.dev/(half|quarter|tenth)", DOCUMENT))
    assert named == set(FIXED_MILLI)


def test_configurations_are_valid() -> None:
    (made,) = [one for one in objects() if one["kind"] == "DeviceClass"]
    parameters = [("FromClass", config["opaque"]["parameters"]) for config in made["spec"]["config"]]
    assert words_of(parameters, 0) == Words("batch", 400, 10)


def test_the_quota_names_each_way_to_each_class() -> None:
    """What it does not name is not limited: the same as the chart makes of the value that is shown."""
    (shown,) = [one for one in objects() if one["kind"] == "ResourceQuota"]
    (value,) = re.findall(r"`quotas: (\{.*\})` is the one above", DOCUMENT)
    counts = [f"quotas.research.{name}={count}" for name, count in yaml.safe_load(value)["research"].items()]
    made = documents(template(*counts))
    (quota,) = [one for one in made if one["kind"] == "ResourceQuota"]
    assert quota["spec"] == shown["spec"]
    for one in made:
        if one["kind"] == "DeviceClass":
            assert f"{one['metadata']['name']}.deviceclass.resource.k8s.io/devices" in quota["spec"]["hard"]
            extended = one["spec"].get("extendedResourceName")
            assert extended is None or f"requests.{extended}" in quota["spec"]["hard"]


#: of a device in Kueue 0.19's CEL (pkg/dra/claims.go makes devices of these, with no features of later Kubernetes)
KUEUE_DEVICE = {"driver", "attributes", "capacity"}


def test_kueue_counts_the_devices_of_amounts() -> None:
    (configuration_,) = documents((ROOT / "deploy" / "kueue" / "configuration.yaml").read_text())
    (mapping,) = configuration_["resources"]["deviceClassMappings"]
    (source,) = mapping["sources"]
    wanted = source["capacity"]["deviceSelector"]["cel"]["expression"]
    assert set(re.findall(r"\bdevice\.(\w+)", wanted)) <= KUEUE_DEVICE
    classes = {one["metadata"]["name"]: one["spec"] for one in documents(template()) if one["kind"] == "DeviceClass"}
    for name in mapping["deviceClassNames"]:
        assert [one["cel"]["expression"] for one in classes[name]["selectors"]] == [wanted]
    (spec,) = specs([Gpu("GPU-0", 0, "H200", 140_400 * MIB, 2 * MIB)], "n1", Policy(fixed_sizes=False))
    assert source["capacity"]["driver"] == spec["driver"]
    assert source["capacity"]["name"] in spec["devices"][0]["capacity"]


def test_taints_and_rules_name_what_the_driver_publishes() -> None:
    table = DOCUMENT.split("## Taints and tolerations\n")[1].split("```")[0]
    assert set(re.findall(r"^\| `(vgpu\.dev/\w+)`", table, re.MULTILINE)) == {TAINT_DRAINED, TAINT_FAULTY, TAINT_TAKEN}
    tolerated = [
        one["key"]
        for claim in objects()
        if claim["kind"] == "ResourceClaim"
        for request in claim["spec"]["devices"]["requests"]
        for one in request["exactly"].get("tolerations", [])
    ]
    assert tolerated == [TAINT_DRAINED]
    (rule,) = [one["spec"]["deviceSelector"] for one in objects() if one["kind"] == "DeviceTaintRule"]
    assert rule == {"driver": DRIVER, "pool": "node-1"}
    (spec,) = specs([Gpu("GPU-0", 0, "H200", 140_400 * MIB, 2 * MIB)], "node-1", Policy(fixed_sizes=False))
    (write,) = changes([spec], [], "node-1", ()).writes
    assert (write.spec["driver"], write.spec["pool"]["name"]) == (rule["driver"], rule["pool"])


def test_the_values_are_the_charts(tmp_path: Path) -> None:
    (text,) = [block for block in blocks("yaml") if block.startswith("# values.yaml")]
    (tmp_path / "values.yaml").write_text(text)
    done = helm("template", "x", str(CHART), "--kube-version", VERSION, "-f", str(tmp_path / "values.yaml"))
    assert done.returncode == 0, done.stderr


def test_the_configuration_gives_the_devices_to_kubernetes(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "vgpud.toml").write_text(text)
    assert configuration.load(tmp_path / "vgpud.toml").devices.kubernetes == ("all",)


def test_the_status_is_what_the_driver_writes() -> None:
    (text,) = [block for block in blocks("yaml") if "kubectl get resourceclaim half" in block]
    (shown,) = yaml.safe_load(text)["status"]["devices"]
    data = shown["data"]
    granted = Granted(data["uuid"], 500, 500, 20480 * MIB, 20480 * MIB)
    result = Result("gpu", shown["pool"], shown["device"], shown["shareID"], data["uuid"])
    asked = Asked("u", "team", "half", (), (result,), (granted,), Words())
    when = shown["conditions"][0]["lastTransitionTime"]
    assert add_condition_times(news({}, asked, data["slice"], (granted,)), when) == [shown]


# ---- sentences ----


def literals(*folders: str) -> str:
    """All texts of these packages and of the chart's policies, one on a line; what is filled in is "..."."""
    lines = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [p.value if isinstance(p, ast.Constant) else "..." for p in node.values]
                    lines.append("".join(str(part) for part in parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    lines.append(node.value)
    return "\n".join([*lines, (CHART / "templates" / "policies.yaml").read_text()])


#: what others say: the scheduler, kubelet, the container runtime
OTHERS = (
    "cannot allocate all claims",
    f"DRA driver {DRIVER} is not registered",
    "unresolvable CDI devices vgpu.dev/gpu=k-",
    "NodeUnprepareResources failed",
    "vgpu gpu ls",
)


def quoted_sentences() -> Iterator[str]:
    """The sentences of the table of symptoms, first column."""
    section = DOCUMENT.split("## When something is wrong\n")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (.+?) \|", section, re.MULTILINE):
        yield from (text for text in re.findall(r"`([^`]+)`", row) if text not in OTHERS)


def test_sentences_are_quoted_as_they_are() -> None:
    said = literals("vgpud/k8s", "vgpud/core", "vgpud/oci").replace(
        "another driver of ...", f"another driver of {DRIVER}"
    )
    assert len(list(quoted_sentences())) > 15
    assert not [text for text in quoted_sentences() if text not in said]


def test_reasons_of_events_are_those_of_the_driver() -> None:
    table = DOCUMENT.split("shows the driver's Events.")[1].split("\n\nIf many pods")[0]
    shown = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    source = "".join((ROOT / "vgpud" / "k8s" / "core" / f"{name}.py").read_text() for name in ("machine", "reports"))
    said = set(re.findall(r'"(Prepared|PrepareFailed|Resized|Device[A-Z]\w+)"', source))
    assert shown == said


def test_events_are_named_as_they_are() -> None:
    line = next(line for line in DOCUMENT.split("\n") if line.startswith("`vgpu events` on the node"))
    said = literals("vgpud/core").split("\n")
    assert not [kind for kind in re.findall(r"`([a-z]+\.[a-z_]+)`", line) if kind not in said]


# ---- a real API server, where there is one ----


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if plane.missing():
        pytest.skip(plane.missing())
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        made.apply(template(namespace="default"))
        for name in ("research", "serving"):
            made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield made


def test_a_real_server_takes_every_object(api: ControlPlane) -> None:
    def is_refused(fields: dict[str, Any], why: str) -> bool:
        """Whether a claim that differs from the documented one is refused for that reason."""
        given = next(one for one in objects() if one["kind"] == "ResourceClaim")
        bad = yaml.safe_load(yaml.safe_dump(given))
        bad["metadata"]["name"] = f"bad-{time.monotonic_ns()}"
        bad["spec"]["devices"]["requests"][0]["exactly"] |= fields
        try:
            api.create(bad)
        except ApiError as error:
            return why in str(error)
        return False

    too_little = {"capacity": {"requests": {"sm": "500"}}}
    wait_until(lambda: is_refused(too_little, "sm below 1000 needs memory"), "the chart's policy")
    order = ["Namespace", "", "ResourceQuota"]
    shown = [one for one in objects() if one["kind"] not in LATER]
    for one in sorted(shown, key=lambda one: order.index(one["kind"] if one["kind"] in order else "")):
        api.create(one)
    wait_until(lambda: is_refused({"deviceClassName": "vgpu-latency"}, "exceeded quota: gpus"), "the documented quota")
    quarter = next(one for one in objects() if one["kind"] == "Pod" and "vgpu.dev/half" in str(one))
    quarter = yaml.safe_load(yaml.safe_dump(quarter).replace("vgpu.dev/half", "vgpu.dev/quarter"))
    quarter["metadata"]["name"] = "quarter"
    with pytest.raises(ApiError, match="exceeded quota: gpus"):
        api.create(quarter)
