"""The real Ray: actors, tasks, placement groups, Tune and Serve on three nodes, two of them with devices.

One cluster for all tests of this file, which one worker of pytest-xdist runs, first of all. Nothing here depends on how
fast the machine is: shares are asked for as ratios that show themselves once, exact figures are in benchmarks/ray.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpud.ray
from tests.mandatory import unavailable
from tests.ray import programs
from tests.ray.ray_cluster import PATIENCE_S, RayCluster, missing, processes, ray_cluster
from tests.shares import check_shares_sum
from vgpud.client import calls

GIB = 1 << 30
MIB = 1 << 20
NOT_PERMITTED = 800

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    if missing():
        unavailable(missing())
    with tempfile.TemporaryDirectory(prefix="vgr-", dir="/tmp") as folder, ray_cluster(Path(folder)) as made:
        yield made


@pytest.fixture
def actors(cluster: RayCluster) -> Iterator[Callable[..., Any]]:
    """Starts actors, by default of programs.Tenant; they end with the test, and their slices with them."""
    started: list[Any] = []

    def start(*size: Any, node: int | None = None, **words: Any) -> Any:
        place = {} if node is None else {"resources": {f"node{node}": 0.001}}
        remote = cluster.ray.remote(programs.Tenant).options(**vgpud.ray.options(*size, **place, **words))
        started.append(remote.remote())
        return started[-1]

    yield start
    for actor in started:
        cluster.ray.kill(actor)
    cluster.wait_for_end_of_slices()


def get(cluster: RayCluster, *refs: Any) -> list[Any]:
    return list(cluster.ray.get(list(refs), timeout=PATIENCE_S))


def test_actors_are_held_to_their_fractions(cluster: RayCluster, actors: Callable[..., Any]) -> None:
    """Memory, time and the device that Ray has counted, of actors of three sizes."""
    half = actors(0.5, node=0, mem="1G")
    quarters = [actors(0.25, node=0, max=1, mem="768M") for _ in range(2)]
    found = get(cluster, *(actor.look_at_devices.remote() for actor in (half, *quarters)))
    assert [one["bytes"] for one in found] == [GIB, 768 * MIB, 768 * MIB]
    assert {one["visible"] for one in found} <= set(cluster.uuids(0)) and all(one["devices"] == 1 for one in found)
    by_pid = {made.name.split("-")[1]: made for made in cluster.slices(0)}
    for one, size in zip(found, (500, 250, 250), strict=True):
        (share,) = by_pid[str(one["pid"])].devices
        assert (share.device_uuid, share.min_milli) == (one["visible"], size), "none is in another's slice"
    get(cluster, *(actor.begin.remote() for actor in (half, *quarters)))
    used = {one["visible"] for one in found}
    if len(used) == 1:  # Ray fills a device before it takes the next one
        device = cluster.uuids(0).index(used.pop())
        pids = [one["pid"] for one in found]
        check_shares_sum(
            cluster.systems[0],
            pids,
            2.0,
            lambda most, *others: all(1.5 < most / max(other, 0.01) < 2.7 for other in others),
            first_max=0.6,
            device=device,
        )
    (most,) = get(cluster, half.most_memory.remote())
    assert GIB - 64 * MIB - 600 * MIB < most < GIB - 64 * MIB, "the limit, less its context"


def test_each_task_has_a_process_and_a_slice(cluster: RayCluster) -> None:
    """Also where one could have the other's, which has ended."""
    task = cluster.ray.remote(**vgpud.ray.options(0.25, resources={"node1": 0.001}))(programs.device_time)
    found = [get(cluster, task.remote(50))[0] for _ in range(2)]
    assert len({one["pid"] for one in found}) == 2
    assert [one["bytes"] for one in found] == [GIB] * 2
    cluster.wait_for_end_of_slices()


def test_placement_groups(cluster: RayCluster, actors: Callable[..., Any]) -> None:
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"GPU": 0.5, "CPU": 1}] * 2, strategy="STRICT_SPREAD")
    try:
        get(cluster, group.ready())
        both = [
            actors(
                0.5,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
                num_cpus=1,
            )
            for index in range(2)
        ]
        found = get(cluster, *(actor.look_at_devices.remote() for actor in both))
        assert [one["bytes"] for one in found] == [2 * GIB] * 2
        assert [len(cluster.slices(number)) for number in range(2)] == [1, 1]
    finally:
        remove_placement_group(group)


def test_beyond_what_is_left(cluster: RayCluster, actors: Callable[..., Any]) -> None:
    """Ray counts what it gives out itself; another user's slice on the device it learns of by a refusal."""
    for index in range(2):
        cluster.systems[1].vgpu("slice", "create", f"other-{index}", "--gpus", "0.8", "--device", str(index))
    try:
        actor = actors(0.5, node=1)
        with pytest.raises(cluster.ray.exceptions.RayActorError, match=f"cuInit answers {NOT_PERMITTED}"):
            get(cluster, actor.look_at_devices.remote())
        with cluster.systems[1].client() as client:
            messages = [event.message for event in client.all(calls.events()) if event.kind == "attach.refused"]
        assert any("cannot be bound: no device has min 0.5" in text for text in messages)
    finally:
        for index in range(2):
            cluster.systems[1].vgpu("slice", "rm", f"other-{index}")


def test_what_no_device_has_is_refused_with_the_reason(cluster: RayCluster) -> None:
    task = cluster.ray.remote(programs.look_at_devices).options(
        **vgpud.ray.options(0.5, mem="9G", resources={"node0": 0.001})
    )
    with pytest.raises(cluster.ray.exceptions.RuntimeEnvSetupError, match="vgpud says: memory 9GiB is more than"):
        get(cluster, task.remote())
    by_hand = cluster.ray.remote(programs.look_at_devices).options(
        num_gpus=0.5, resources={"node0": 0.001}, runtime_env={"vgpu": {"gpus": 0.5, "max": 0.1}}
    )
    with pytest.raises(cluster.ray.exceptions.RuntimeEnvSetupError, match=r"max 0\.1 is below gpus 0\.5"):
        get(cluster, by_hand.remote())


def test_a_killed_worker_leaves_nothing(cluster: RayCluster, actors: Callable[..., Any]) -> None:
    """It has two whole devices."""
    actor = actors(2, node=0)
    (found,) = get(cluster, actor.look_at_devices.remote())
    assert (found["devices"], sorted(found["visible"].split(","))) == (2, sorted(cluster.uuids(0)))
    assert [share.min_milli for share in cluster.slices(0)[0].devices] == [1000, 1000]
    os.kill(found["pid"], signal.SIGKILL)
    cluster.wait_for_end_of_slices()
    with cluster.systems[0].client() as client:
        assert [device.reserved_milli for device in client.all(calls.devices())] == [0, 0]


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="needs the package ray[tune]")
def test_trials_of_tune(cluster: RayCluster, tmp_path: Path) -> None:
    """They have the environment of the job, as all its workers."""
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        tune.report(programs.device_time(20))

    environment = vgpud.ray.runtime_env(0.25, max=1)
    with_resources = tune.with_resources(trial, tune.PlacementGroupFactory([{"CPU": 1, "GPU": 0.25}]))
    cluster.ray.shutdown()
    cluster.ray.init(address=cluster.cluster.address, runtime_env=environment, log_to_driver=False)
    try:
        quiet = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
        results = tune.Tuner(with_resources, param_space={"x": tune.grid_search([1, 2, 3])}, run_config=quiet).fit()
        assert not results.errors
        assert [one.metrics["bytes"] for one in results] == [GIB] * 3
        assert len({one.metrics["pid"] for one in results}) == 3
    finally:
        cluster.ray.shutdown()
        cluster.ray.init(address=cluster.cluster.address, log_to_driver=False)
    cluster.wait_for_end_of_slices()


def test_replicas_of_serve(cluster: RayCluster) -> None:
    from ray import serve

    @serve.deployment(num_replicas=2, ray_actor_options=vgpud.ray.options(0.25, mem="768M"))
    class Model:
        def __call__(self) -> dict[str, Any]:
            return programs.look_at_devices()

    handle = serve.run(Model.bind(), route_prefix=None)
    try:
        found = [handle.remote().result(timeout_s=PATIENCE_S) for _ in range(8)]
        assert {one["bytes"] for one in found} == {768 * MIB}
    finally:
        serve.shutdown()
    cluster.wait_for_end_of_slices()


def test_a_killed_raylet_leaves_nothing(cluster: RayCluster, actors: Callable[..., Any]) -> None:
    """Last but one: its node does not come back."""
    actor = actors(0.5, node=1)
    get(cluster, actor.begin.remote())
    assert len(cluster.slices(1)) == 1
    cluster.remove(1)
    cluster.wait_for_end_of_slices()  # a worker notices it by itself, after some seconds


def test_nothing_of_ray_is_left(cluster: RayCluster) -> None:
    """The last test: it ends the cluster, as the end of this file does."""
    started = processes(cluster.mark)
    assert len(started) >= 4, "raylets and the head's processes"
    cluster.stop()
    assert processes(cluster.mark) == []
    assert all(not cluster.slices(number) for number in range(2))
    for system in cluster.systems:
        with system.client() as client:
            assert [device.reserved_milli for device in client.all(calls.devices())] == [0, 0]
