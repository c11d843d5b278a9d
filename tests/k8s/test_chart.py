"""The chart as `helm template` makes it, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

HELM = Path(sys.executable).parent / "helm"  # of the package helm-binary
CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "vgpud"

pytestmark = pytest.mark.skipif(not HELM.exists(), reason="helm is not installed (extra test)")


def helm(version: str, *settings: str) -> subprocess.CompletedProcess[str]:
    command = [str(HELM), "template", "x", str(CHART), "--kube-version", version]
    command += [word for setting in settings for word in ("--set", setting)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def objects(version: str, *settings: str) -> dict[str, list[dict[str, Any]]]:
    """By kind."""
    made = helm(version, *settings)
    assert made.returncode == 0, made.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for one in yaml.safe_load_all(made.stdout):
        if one:
            found.setdefault(one["kind"], []).append(one)
    return found


def test_a_cluster_before_1_34_needs_the_device_plugin_and_gets_no_object_that_it_does_not_know() -> None:
    refused = helm("1.30.0")
    assert refused.returncode and "set devicePlugin.enabled=true" in refused.stderr
    made = objects("1.30.0", "devicePlugin.enabled=true", "devicePlugin.tenthMaxMilli=1000")
    assert {"DeviceClass", "ValidatingAdmissionPolicy"}.isdisjoint(made)
    (driver,) = made["DaemonSet"]
    (container,) = driver["spec"]["template"]["spec"]["containers"]
    assert {"--device-plugin", "--tenth-max-milli=1000"} <= set(container["args"])
    assert container["livenessProbe"]["exec"]["command"][-1] == "--device-plugin"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["hostPath"]["path"] for volume in driver["spec"]["template"]["spec"]["volumes"]}
    kubelets = {f"/var/lib/kubelet/{name}" for name in ("device-plugins", "pod-resources", "plugins")}
    assert kubelets <= mounts and mounts == volumes
    (role,) = made["ClusterRole"]
    rules = [(rule["resources"], rule["verbs"]) for rule in role["rules"]]
    assert rules == [(["resourceslices"], ["list", "delete"])]


def test_by_default_nodes_have_the_dra_driver_alone() -> None:
    made = objects("1.36.0")
    assert len(made["DeviceClass"]) == 5
    (container,) = made["DaemonSet"][0]["spec"]["template"]["spec"]["containers"]
    assert "--device-plugin" not in container["args"]
    assert not any("device-plugins" in mount["mountPath"] for mount in container["volumeMounts"])


@pytest.mark.parametrize("wrong", ["devicePlugin.enabled=1", "devicePlugin.tenthMaxMilli=1001", "devicePlugin.on=true"])
def test_values_are_checked(wrong: str) -> None:
    refused = helm("1.36.0", wrong)
    assert refused.returncode and wrong.partition("=")[0].partition(".")[0] in refused.stderr
