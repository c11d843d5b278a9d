"""The Helm chart without a cluster: what it renders, what its pods may do, which values it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.charts import CHART, IMAGE, VERSION, helm, render_objects, template, wrong
from vgpud import __version__
from vgpud import config as configuration
from vgpud.host.beat import write_beat
from vgpud.k8s.core import names
from vgpud.k8s.core.manifest import DEVICE_CLASS
from vgpud.k8s.main import main as vgpud_k8s

POD_MODE = "daemon.mode=pod"
ALL_ON = (POD_MODE, "serviceMonitor.create=true", "driver.evictOnFault=true", "daemon.resources.limits.memory=1Gi")
ALL_OFF = (
    "deviceClasses.create=false",
    "policies.create=false",
    "driver.fixedSizes=false",
    "priorityClassName=",
    "tolerations=null",
)
ACCOUNT = "x-vgpud-driver"
PLUGIN = "devicePlugin.enabled=true"

Object = dict[str, Any]


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(name)]
    return found


def pod(*settings: str, component: str) -> Object:
    spec: Object = one(render_objects(*settings), "DaemonSet", f"-{component}")["spec"]["template"]["spec"]
    return spec


def mounts(spec: Object, container: Object) -> dict[str, tuple[str, bool]]:
    """Folder of the container -> (folder of the node or source, whether it is read-only)."""
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    made = {}
    for mount in container["volumeMounts"]:
        host = volumes[mount["name"]].get("hostPath", {}).get("path", mount["name"])
        made[mount["mountPath"]] = (host, mount.get("readOnly", False))
    return made


# ---- it renders, as Kubernetes' types say ----


@pytest.mark.parametrize(
    "settings",
    [(), (POD_MODE,), ALL_ON, ALL_OFF, (PLUGIN, *ALL_ON)],
    ids=["default", "pod", "all on", "all off", "device plugin"],
)
def test_every_object_is_one_of_kubernetes(settings: tuple[str, ...]) -> None:
    objects = render_objects(*settings)
    assert not {o["metadata"]["name"]: wrong(o) for o in objects if wrong(o)}
    names_ = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(set(names_)) == len(names_)
    for o in objects:
        assert o["metadata"]["labels"]["app.kubernetes.io/instance"] == "x"
        namespaced = o["kind"] in ("ServiceAccount", "DaemonSet", "ConfigMap", "Service", "ServiceMonitor")
        assert o["metadata"].get("namespace") == ("vgpu-system" if namespaced else None)


def test_what_is_wrong_is_found() -> None:
    """The check of types itself."""
    given = one(render_objects(), "DaemonSet")
    container = given["spec"]["template"]["spec"]["containers"][0]
    container["volumMounts"] = []
    assert wrong(given) == ["$.spec.template.spec.containers[0].volumMounts"]
    container["livenessProbe"]["periodSeconds"] = "x"
    assert "Expected `int" in wrong(given)[0]


@pytest.mark.parametrize("settings", [(), (POD_MODE,), (PLUGIN,)])
def test_lint(settings: tuple[str, ...]) -> None:
    done = helm("lint", "--strict", str(CHART), *[w for s in (IMAGE, *settings) for w in ("--set", s)])
    assert done.returncode == 0, done.stdout + done.stderr


def test_versions_are_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


@pytest.mark.parametrize("settings", [(), (POD_MODE,)])
def test_selectors_select_their_own_pods_only(settings: tuple[str, ...]) -> None:
    sets = [o for o in render_objects(*settings) if o["kind"] == "DaemonSet"]
    for o in sets:
        wanted = o["spec"]["selector"]["matchLabels"].items()
        fitting = [p["metadata"]["name"] for p in sets if wanted <= p["spec"]["template"]["metadata"]["labels"].items()]
        assert fitting == [o["metadata"]["name"]]


def test_an_image_by_digest() -> None:
    digest = "sha256:" + "a" * 64
    for settings in ((), (POD_MODE,)):
        objects = render_objects(f"image.digest={digest}", *settings)
        specs = [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "DaemonSet"]
        images = {c["image"] for spec in specs for c in spec["containers"] + spec.get("initContainers", [])}
        assert images == {f"registry.example/vgpud-k8s@{digest}"}


# ---- what the driver may do ----


@pytest.mark.parametrize("settings", [(), ALL_ON])
def test_the_role_is_exactly_this(settings: tuple[str, ...]) -> None:
    objects = render_objects(*settings)
    role = one(objects, "ClusterRole")
    rules = {
        (group, resource): (rule["verbs"], rule.get("resourceNames"))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert rules == {
        ("resource.k8s.io", "resourceclaims"): (["get"], None),
        ("resource.k8s.io", "resourceclaims/status"): (["patch"], None),
        ("resource.k8s.io", "resourceclaims/driver"): (["associated-node:patch"], [names.DRIVER]),
        ("resource.k8s.io", "resourceslices"): (["get", "list", "watch", "create", "update", "delete"], None),
        ("", "nodes"): (["get"], None),
        ("events.k8s.io", "events"): (["create"], None),
    }
    assert not [o for o in objects if o["kind"] in ("Role", "RoleBinding", "Secret")]
    binding = one(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "vgpu-system"}]


def test_nothing_of_the_role_is_a_star() -> None:
    for o in render_objects(*ALL_ON):
        if "rules" in o:
            assert "*" not in str(o["rules"])


def test_the_drivers_pod_has_three_folders_of_the_node_and_no_capability() -> None:
    spec = pod(component="driver")
    (container,) = spec["containers"]
    kubelet = "/var/lib/kubelet"
    assert mounts(spec, container) == {
        "/run/health": ("health", False),
        f"{kubelet}/plugins_registry": (f"{kubelet}/plugins_registry", False),
        f"{kubelet}/plugins/{names.DRIVER}": (f"{kubelet}/plugins/{names.DRIVER}", False),
        "/run/vgpud": ("/run/vgpud", True),
    }
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() and spec["serviceAccountName"] == ACCOUNT


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("driver.fixedSizes=false", "driver.evictOnFault=true", "kubeletDir=/data/k"),
        (PLUGIN, "devicePlugin.tenthMaxMilli=1000"),
    ],
)
def test_the_commands_exist(settings: tuple[str, ...]) -> None:
    (container,) = pod(*settings, component="driver")["containers"]
    words = container["command"] + container["args"]
    assert words[0] == "vgpud-k8s"
    vgpud_k8s.make_context("vgpud-k8s", words[1:])  # raises where an option is unknown or its value is not
    assert ("--device-plugin" in words) is (PLUGIN in settings)
    env = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert env == {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}


# ---- probes ----


def test_probes_start_no_interpreter_and_have_patience() -> None:
    """Of Python each took a quarter of a second of a processor: a busy node killed a driver that was well. The daemon's
    startup alone asks the daemon itself."""
    for component in ("driver", "daemon"):
        (container,) = pod(POD_MODE, component=component)["containers"]
        for name in ("livenessProbe", "readinessProbe"):
            probe = container.get(name, {"exec": {"command": ["test"]}, "timeoutSeconds": 30})
            assert probe["exec"]["command"][0] in ("sh", "test") and probe["timeoutSeconds"] >= 30
        assert container["livenessProbe"]["failureThreshold"] >= 6


@pytest.mark.parametrize("age_s", [0, 60, 120, None], ids=["now", "a minute ago", "two minutes ago", "never"])
def test_the_probe_of_life_sees_how_old_the_beat_is(tmp_path: Path, age_s: int | None) -> None:
    (container,) = pod(component="driver")["containers"]
    command = [word.replace("/run/health", str(tmp_path)) for word in container["livenessProbe"]["exec"]["command"]]
    write_beat(tmp_path)
    beat = tmp_path / "beat"
    if age_s is None:
        beat.unlink()
    else:
        beat.write_text(f"{int(beat.read_text()) - age_s}\n")
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode == 0) is (age_s in (0, 60))


# ---- replacing pods ----


def test_a_driver_is_replaced_without_a_gap_and_what_can_run_only_once_is_not() -> None:
    def strategy(component: str, *settings: str) -> Object:
        found: Object = one(render_objects(*settings), "DaemonSet", f"-{component}")["spec"]["updateStrategy"]
        return found

    once = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert strategy("driver")["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert strategy("driver", PLUGIN) == strategy("daemon", POD_MODE) == once
    assert strategy("driver", "driver.updateStrategy.rollingUpdate.maxSurge=20%")["rollingUpdate"]["maxSurge"] == "20%"
    assert strategy("daemon", POD_MODE, "daemon.updateStrategy.type=OnDelete")["type"] == "OnDelete"


def test_affinity_is_that_of_both_pods() -> None:
    path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    settings = [f"{path}.matchExpressions[0].{key}" for key in ("key=gpu", "operator=Exists")]
    for component in ("driver", "daemon"):
        assert "gpu" in str(pod(POD_MODE, *settings, component=component)["affinity"])
        assert "affinity" not in pod(POD_MODE, component=component)


# ---- the device plugin, for clusters before 1.34 ----


def test_the_device_plugins_pod_has_kubelets_folders_for_it_and_no_capability() -> None:
    spec, driver = pod(PLUGIN, component="driver"), pod(component="driver")
    (container,) = spec["containers"]
    kubelet = "/var/lib/kubelet"
    assert mounts(spec, container) == {
        "/run/health": ("health", False),
        f"{kubelet}/device-plugins": (f"{kubelet}/device-plugins", False),
        f"{kubelet}/pod-resources": (f"{kubelet}/pod-resources", True),
        f"{kubelet}/plugins/{names.DRIVER}": (f"{kubelet}/plugins/{names.DRIVER}", True),  # its lock
        "/run/vgpud": ("/run/vgpud", True),
    }
    assert container["securityContext"] == driver["containers"][0]["securityContext"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() and spec["serviceAccountName"] == ACCOUNT


def test_the_device_plugins_role_is_exactly_this() -> None:
    objects = render_objects(PLUGIN)
    assert one(objects, "ClusterRole")["rules"] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list", "delete"]}
    ]
    assert {o["kind"] for o in objects} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"}


@pytest.mark.parametrize("version", ["1.28.0", "1.33.4-gke.1"])
def test_a_cluster_before_1_34_gets_only_objects_that_it_knows(version: str) -> None:
    made = [o for o in yaml.safe_load_all(template(PLUGIN, version=version)) if o]
    assert made == render_objects(PLUGIN)
    assert {o["apiVersion"] for o in made} == {"v1", "apps/v1", "rbac.authorization.k8s.io/v1"}


# ---- the daemon's pod ----


def test_with_the_daemon_on_the_host_there_is_no_privileged_pod() -> None:
    objects = render_objects()
    assert [o["metadata"]["name"] for o in objects if o["kind"] == "DaemonSet"] == [f"{ACCOUNT}"]
    assert "privileged" not in str(objects)


def test_the_daemons_pod_has_the_hosts_processes_and_folders() -> None:
    """What `vgpud serve --in-container` insists on, and no token of the API server's."""
    spec = pod(POD_MODE, component="daemon")
    (container,) = spec["containers"]
    assert (spec["hostPID"], spec["hostNetwork"], spec["automountServiceAccountToken"]) == (True, True, False)
    assert container["securityContext"] == {"privileged": True} and spec["runtimeClassName"] == "nvidia"
    assert "serviceAccountName" not in spec
    assert mounts(spec, container) == {
        "/etc/vgpud": ("config", False),
        "/run/vgpud": ("/run/vgpud", False),
        "/var/lib/vgpud": ("/var/lib/vgpud", False),
        "/var/cache/vgpud": ("/var/cache/vgpud", False),
        "/var/run/cdi": ("/var/run/cdi", False),
        "/etc/cdi": ("/etc/cdi", True),
    }
    (front,) = spec["initContainers"]
    assert mounts(spec, front) == {"/host/usr/lib/vgpu": ("/usr/lib/vgpu", False)}
    assert front["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_both_pods_and_the_configuration_name_the_same_socket(tmp_path: Path) -> None:
    settings = (POD_MODE, "daemon.runtimeDir=/run/other", "cdiDir=/etc/other", "daemon.kubernetesDevices={0,1}")
    objects = render_objects(*settings)
    (tmp_path / "vgpud.toml").write_text(one(objects, "ConfigMap")["data"]["vgpud.toml"])
    config = configuration.load(tmp_path / "vgpud.toml")
    assert str(config.runtime) == "/run/other" and str(config.cdi_dir) == "/etc/other"
    assert config.devices.kubernetes == ("0", "1")
    driver = one(objects, "DaemonSet", "-driver")["spec"]["template"]["spec"]
    assert "--socket=/run/other/vgpud.sock" in driver["containers"][0]["args"]
    daemon = one(objects, "DaemonSet", "-daemon")["spec"]["template"]["spec"]
    assert {"name": "VGPU_HOST", "value": "unix:///run/other/vgpud.sock"} in daemon["containers"][0]["env"]
    assert daemon["initContainers"][0]["command"][-1] == "/run/other/runtime.sock"


def render_config(tmp_path: Path, *settings: str) -> configuration.Config:
    (tmp_path / "vgpud.toml").write_text(one(render_objects(POD_MODE, *settings), "ConfigMap")["data"]["vgpud.toml"])
    return configuration.load(tmp_path / "vgpud.toml")


def test_prometheus_keeps_the_labels_of_pods() -> None:
    """Else it would rename those of the metrics, in favour of the daemon's own namespace and pod."""
    (endpoint,) = one(render_objects(*ALL_ON), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_metrics_leave_the_node_only_where_prometheus_is_to_have_them(tmp_path: Path) -> None:
    assert render_config(tmp_path).metrics == "127.0.0.1:9419"
    assert render_config(tmp_path, "serviceMonitor.create=true").metrics == "0.0.0.0:9419"


def test_further_lines_of_the_configuration(tmp_path: Path) -> None:
    assert render_config(tmp_path, 'daemon.config=on_stranger = "kill"').on_stranger == "kill"


def test_a_changed_configuration_starts_the_daemon_again() -> None:
    def checksum(*settings: str) -> str:
        template = one(render_objects(POD_MODE, *settings), "DaemonSet", "-daemon")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum() != checksum("daemon.config=slices_max = 3")


# ---- classes and policies ----


def test_classes_are_those_that_claims_name() -> None:
    classes = {o["metadata"]["name"]: o["spec"] for o in render_objects() if o["kind"] == "DeviceClass"}
    assert set(DEVICE_CLASS.values()) <= set(classes)
    fixed = {f"vgpu-{size}": f"vgpu.dev/{size}" for size in names.FIXED_MILLI}
    assert {name: spec.get("extendedResourceName") for name, spec in classes.items() if name in fixed} == fixed
    for spec in classes.values():
        (selector,) = spec["selectors"]
        assert f"device.driver == '{names.DRIVER}'" in selector["cel"]["expression"]
    (config,) = classes["vgpu-latency"]["config"]
    assert config["opaque"]["parameters"] == {
        "apiVersion": names.CONFIG_API,
        "kind": names.CONFIG_KIND,
        "class": "latency",
    }


def test_each_policy_denies_and_fails_closed() -> None:
    objects = render_objects()
    policies = [o for o in objects if o["kind"] == "ValidatingAdmissionPolicy"]
    bound = {o["spec"]["policyName"]: o["spec"] for o in objects if o["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert {o["metadata"]["name"] for o in policies} == set(bound) and len(policies) == 4
    for o in policies:
        assert o["spec"]["failurePolicy"] == "Fail"
        assert bound[o["metadata"]["name"]]["validationActions"] == ["Deny"]
    account = f'"system:serviceaccount:vgpu-system:{ACCOUNT}"'
    for name in ("-own-node", "-own-claims", "-own-events"):
        (condition,) = one(objects, "ValidatingAdmissionPolicy", name)["spec"]["matchConditions"]
        assert account in condition["expression"]
    (rule,) = one(objects, "ValidatingAdmissionPolicy", "-own-node")["spec"]["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]


@pytest.mark.parametrize(("version", "has_fixed_sizes"), [("1.34.7", False), ("1.35.0-eks-1", True), ("1.36.2", True)])
def test_fixed_sizes_begin_with_kubernetes_1_35(tmp_path: Path, version: str, has_fixed_sizes: bool) -> None:
    """Before, counters had to be in the ResourceSlice of their devices."""
    made = [one for one in yaml.safe_load_all(template(version=version)) if one]
    arguments = one(made, "DaemonSet", "-driver")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--fixed-sizes" in arguments, "--no-fixed-sizes" in arguments) == (has_fixed_sizes, not has_fixed_sizes)
    classes = [o["metadata"]["name"] for o in made if o["kind"] == "DeviceClass"]
    assert ("vgpu-half" in classes) is has_fixed_sizes and "vgpu" in classes
    notes = render_notes(tmp_path, version)
    assert ("need Kubernetes 1.35: they are left out" in notes) is not has_fixed_sizes
    assert ("PartitionableDevices" in notes) is has_fixed_sizes and "DRA(ConsumableCapacity" in notes


def test_no_extended_resources_without_fixed_sizes() -> None:
    classes = [o["metadata"]["name"] for o in render_objects("driver.fixedSizes=false") if o["kind"] == "DeviceClass"]
    assert classes == ["vgpu", "vgpu-latency", "vgpu-mig", "vgpu-monitor"]


def test_monitors_are_the_sites_choice() -> None:
    (container,) = pod("driver.monitors=false", component="driver")["containers"]
    assert "--no-monitors" in container["args"]
    assert "vgpu-monitor" not in [o["metadata"]["name"] for o in render_objects("driver.monitors=false")]
    spec = one(render_objects(), "DeviceClass", "vgpu-monitor")["spec"]
    assert f"size == '{names.MONITOR}'" in spec["selectors"][0]["cel"]["expression"]


def test_a_quota_limits_what_it_does_not_name_to_nothing() -> None:
    quota = one(render_objects("quotas.research.vgpu=8", "quotas.research.vgpu-mig=5000000"), "ResourceQuota")
    assert not wrong(quota) and quota["metadata"]["namespace"] == "research"
    hard = quota["spec"]["hard"]
    assert hard.pop("vgpu-mig.deviceclass.resource.k8s.io/devices") == "5000000"
    assert hard.pop("vgpu.deviceclass.resource.k8s.io/devices") == "8" and set(hard.values()) == {"0"}
    (plugins,) = [o for o in render_objects(PLUGIN, "quotas.research.vgpu-tenth=10") if o["kind"] == "ResourceQuota"]
    assert plugins["spec"]["hard"]["requests.vgpu.dev/tenth"] == "10"
    assert not [name for name in plugins["spec"]["hard"] if "deviceclass" in name]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("image.repository=", "image.repository is not set: build the image"),
        ("image.registry=x", "Additional property registry is not allowed"),
        ("image.digest=latest", "image.digest: Does not match pattern"),
        ("image.pullPolicy=Sometimes", "image.pullPolicy"),
        ("driver.slicesMax=0", "driver.slicesMax"),
        ("driver.slicesMax=129", "driver.slicesMax"),
        ("driver.slicesMax=many", "driver.slicesMax: Invalid type"),
        ("driver.fixedSize=true", "Additional property fixedSize is not allowed"),
        ("driver.resources.limit.memory=1Gi", "Additional property limit is not allowed"),
        ("devicePlugin.enabled=1", "devicePlugin.enabled"),
        ("devicePlugin.tenthMaxMilli=1001", "devicePlugin.tenthMaxMilli"),
        ("devicePlugin.on=true", "Additional property on is not allowed"),
        ("daemon.mode=systemd", "daemon.mode"),
        ("daemon.runtimeDir=run/vgpud", "daemon.runtimeDir: Does not match pattern"),
        ("daemon.metricsPort=80", "daemon.metricsPort"),
        ("daemon.updateStrategy.rollingUpdate.maxSurge=1", "daemon.updateStrategy.rollingUpdate.maxSurge"),
        ("driver.updateStrategy.type=Recreate", "driver.updateStrategy.type"),
        ("affinity=x", "affinity"),
        ("daemon.kubernetesDevices={first}", "daemon.kubernetesDevices.0"),
        ("daemon.kubernetesDevices={0,0}", "daemon.kubernetesDevices"),
        ("kubeletDir=kubelet", "kubeletDir"),
        ("tolerations[0].operator=Maybe", "tolerations.0.operator"),
        ("serviceAccount.name=Driver", "serviceAccount.name"),
        ("serviceMonitor.interval=often", "serviceMonitor.interval"),
        ("serviceMonitor.create=true", "serviceMonitor.create needs daemon.mode=pod"),
        ("quotas.research.vgpu=-1", "quotas.research.vgpu"),
        ("quotas.research.half=1", "quotas.research"),
        ("rbac.create=false", "Additional property rbac is not allowed"),
    ],
)
def test_values_that_are_refused(setting: str, message: str) -> None:
    done = helm("template", "x", str(CHART), "--kube-version", VERSION, "--set", IMAGE, "--set", setting)
    assert done.returncode != 0 and message in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("version", "settings", "message"),
    [
        ("1.33.0", (), "Kubernetes before 1.34 has no ResourceClaims of version v1: set devicePlugin.enabled=true"),
        ("1.27.9", (PLUGIN,), "requires kubeVersion: >=1.28"),
    ],
)
def test_clusters_without_the_api_are_refused(version: str, settings: tuple[str, ...], message: str) -> None:
    given = [w for s in (IMAGE, *settings) for w in ("--set", s)]
    done = helm("template", "x", str(CHART), "--kube-version", version, *given)
    assert done.returncode != 0 and message in done.stderr


def render_notes(tmp_path: Path, version: str, *settings: str) -> str:
    """helm shows the notes on installing alone, so here they are a text in an object."""
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy)
    lines = (copy / "templates" / "NOTES.txt").read_text().splitlines()
    (copy / "templates" / "notes.yaml").write_text("\n".join(["text: |", *(f"  {line}" for line in lines)]))
    given = [w for s in (IMAGE, *settings) for w in ("--set", s)]
    words = ("template", "x", str(copy), "--kube-version", version, *given, "-s", "templates/notes.yaml")
    return str(yaml.safe_load(helm(*words).stdout)["text"])


@pytest.mark.parametrize(("version", "gates_are_off"), [("1.35.1", True), ("1.36.2", False)])
def test_the_notes_ask_for_the_feature_gates(tmp_path: Path, version: str, gates_are_off: bool) -> None:
    notes = render_notes(tmp_path, version)
    assert ("has the features that shared GPUs need switched off" in notes) is gates_are_off
    assert "kubectl get --raw /metrics" in notes and "logs ds/x-vgpud-driver" in notes
    assert "vgpud itself is expected on the nodes" in notes and "tenth" not in notes


def test_the_notes_of_the_device_plugin_are_about_tenths_alone(tmp_path: Path) -> None:
    notes = render_notes(tmp_path, "1.30.0", PLUGIN)
    assert "limits: {vgpu.dev/tenth: 5}" in notes and "vgpud itself is expected on the nodes" in notes
    assert not [word for word in ("resourceslices", "gpu.vgpu.dev", "vgpu claim", "DRA") if word in notes]


def test_every_value_has_a_rule_and_a_default() -> None:
    values, schema = (
        yaml.safe_load((CHART / "values.yaml").read_text()),
        json.loads((CHART / "values.schema.json").read_text()),
    )
    assert set(values) | {"global"} == set(schema["properties"])
    for name, value in values.items():
        if isinstance(value, dict) and "properties" in schema["properties"][name]:
            assert set(value) == set(schema["properties"][name]["properties"]), name
            assert schema["properties"][name]["additionalProperties"] is False
