"""Jobs in environments on a real daemon, with a stand-in for the engine: from the site's file to a job's reason."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.skipif(MISSING, reason="no native programs were built")]

#: runs a container's command beside itself, and has every image but one
ENGINE = """#!/bin/sh
case "$1 $2 $3" in
  "image inspect r.io/nowhere:1") exit 1;;
  "pull "*) echo "Error response from daemon: manifest unknown" >&2; exit 1;;
  "run "*)
    for word in "$@"; do case "$word" in *source=*) source=${word#*source=}; export DATA="${source%%,*}";; esac; done
    while [ "$1" != -- ]; do shift; done
    shift 2
    exec "$@";;
esac
"""
LIST = """
[environment.fine]
image = "r.io/fine:1"
command = ["sh", "-c", "cat $DATA/word; echo; exit 3"]
volumes = ["{folder}/sets:/data:ro"]
gpus = 0.25
mem = "1G"

[environment.private]
image = "r.io/nowhere:1"
command = ["true"]
gpus = 0.25
registry = "site"

[environment.nowhere]
image = "r.io/nowhere:1"
command = ["true"]
gpus = 0.25

[registry.site]
auth_file = "{folder}/none.json"
"""


@pytest.fixture
def queue(node: Node, fake_driver: Path) -> Iterator[QueueNode]:
    folder = node.directory
    engine = folder / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    (folder / "sets").mkdir()
    (folder / "sets" / "word").write_text("seen")
    list_file = folder / "environments.toml"
    list_file.write_text(LIST.format(folder=folder))
    jobs = f'{{ engine = "{engine}", volumes = ["{folder}/sets:ro"] }}'
    with queue_node(node, environments=f'"{list_file}"', jobs=jobs) as made:
        yield made.start()


def submit(queue: QueueNode, name: str, **fields: object) -> int:
    """A job of an environment's command and size."""
    request = pb.SubmitJobRequest(
        spec=pb.JobSpec(
            environment_name=name,
            directory=str(queue.work),
            log=str(queue.work / "%j.log"),
            **fields,  # type: ignore[arg-type]
        )
    )
    return int(queue.jobs.SubmitJob(request).job_ids[0])


def names(queue: QueueNode) -> list[str]:
    return [one.name for one in queue.jobs.ListEnvironments(pb.ListEnvironmentsRequest()).environments]


def test_it_runs_with_what_the_site_has_written(queue: QueueNode) -> None:
    job = queue.wait_for_end(submit(queue, "fine"))
    assert (job.exit_code, queue.read_file(f"{job.job_id}.log")) == (3, "seen\n")
    assert (job.spec.slice.gpus_milli, job.spec.image) == (250, "r.io/fine:1")
    left = [path.name for path in (queue.node.state / "jobs").iterdir() if path.name.startswith(f"{job.job_id}.")]
    wait_until(lambda: not left or not any(Path(queue.node.state / "jobs" / name).exists() for name in left), "cleaned")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "image r.io/nowhere:1 cannot be pulled: Error response from daemon: manifest unknown"),
        ("private", "the site's credentials: No such file or directory"),
    ],
)
def test_the_reason_of_an_image_that_cannot_be_pulled(queue: QueueNode, name: str, why: str) -> None:
    job = queue.wait_for_end(submit(queue, name))
    assert job.exit_code == 125 and job.reason.endswith(why), job.reason
    assert f"vgpu: {why}" in queue.read_file(f"{job.job_id}.log")


def test_the_reason_of_a_link_that_leads_away(queue: QueueNode) -> None:
    link = queue.node.directory / "sets" / "link"
    link.symlink_to("/etc")
    job = queue.wait_for_end(submit(queue, "fine", volumes=[f"{link}:/more:ro"]))
    assert f"volume {link} is /etc, which is not below a directory that jobs may have" in job.reason, job.reason


def test_a_damaged_list_and_a_killed_daemon_lose_nothing(queue: QueueNode) -> None:
    """A held job of an environment starts with what it was submitted with, whatever becomes of the list."""
    waiting = submit(queue, "fine", hold=True)
    path = queue.node.directory / "environments.toml"
    path.write_text("[environment.fine\n")
    wait_until(lambda: queue.jobs.ListEnvironments(pb.ListEnvironmentsRequest()).problem, "the problem is seen")
    assert names(queue) == ["fine", "nowhere", "private"]
    assert queue.wait_for_end(submit(queue, "fine")).exit_code == 3
    queue.restart(signal.SIGKILL)
    assert names(queue) == ["fine", "nowhere", "private"]
    queue.jobs.ReleaseJob(pb.ReleaseJobRequest(job_id=waiting))
    assert queue.wait_for_end(waiting).exit_code == 3
    path.write_text('[environment.more]\ncommand = ["true"]\n')
    wait_until(lambda: names(queue) == ["more"], "the list is read again")
