"""Slurm's jobs and nodes as the queue knows them."""

from __future__ import annotations

import re
from collections.abc import Collection

from vgpud.cluster.core.model import Settings, SlurmJob, SlurmNode
from vgpud.core.devices.rates import model_key
from vgpud.core.jobs.model import DEFAULT_QUEUE, NEVER_NS, Ask, JobSpec, Node
from vgpud.core.jobs.similarity import broad_classes
from vgpud.core.model import Device, Spec
from vgpud.core.queue.check import ARRAY_JOBS_MAX
from vgpud.core.units import GPUS_MAX, MILLI_PER_DEVICE
from vgpud.slurm import comment

#: Slurm does not say how much memory a device has: of this assumed one a job takes in proportion to its share, so that
#: it decides nothing; sentences have what the node publishes, or nothing (Node.told_bytes)
MEMORY_BYTES = 80 << 30
GRANULE_BYTES = 2 << 20
_PART = re.compile(r"(?:gres[:/])?(gpu|shard)(?::([A-Za-z][\w.-]*))?(?::(\d{1,9}))?")


class NotOurs(ValueError):
    """A job that the queue cannot place; the text says why and what to write instead."""


def spec_of(job: SlurmJob, queues: Collection[str], settings: Settings) -> JobSpec:
    """What the job asks for. Raises NotOurs."""
    if not re.fullmatch(r"\d+(_\d+)?", job.key):
        raise NotOurs("a job of several components is not placed by vgpu cluster: submit them one by one")
    kind, model, count = _gres(job.request.gres)
    gpus_milli = count * MILLI_PER_DEVICE
    if kind == "shard":
        gpus_milli = count * MILLI_PER_DEVICE // settings.shards_per_device
        if not 0 < gpus_milli <= MILLI_PER_DEVICE:
            most = settings.shards_per_device
            raise NotOurs(f"--gres=shard:{count} is not a part of one device: write 1 to {most}, or --gres=gpu:N")
    said = comment.parse_comment(job.request.comment)
    profile = said.get("model", "")
    ask = Ask(
        Spec(gpus_milli),
        cpu_milli=-(-job.request.cpus * 1000 // max(1, job.request.nodes)),
        gpu_models=(model,) if model else (),
        rates=settings.rates.get(model_key(profile), ()) if profile else (),
    )
    return JobSpec(
        ask,
        members=job.request.nodes,
        one_per_node=job.request.nodes > 1,
        name=job.key,
        queue=queue_of(job, queues),
        uid=job.uid,
        duration_ns=comment.parse_duration_ns(said.get("duration", "")) or job.request.time_limit_ns,
        # Slurm's number of the array, not the queue's: it stays when its first element has ended
        array=job.number[0] if job.array_limit else 0,
        array_limit=min(job.array_limit or 0, ARRAY_JOBS_MAX),
        model=profile,
        skew_ppm=comment.parse_skew_ppm(said.get("skew", "")),
        preemptible=job.requeues,
        kinds=broad_classes(job.uid, gpus_milli, job.request.nodes),
    )


def queue_of(job: SlurmJob, queues: Collection[str]) -> str:
    """The queue named like its account, else the default one."""
    return job.account if job.account in queues else DEFAULT_QUEUE


def _gres(text: str) -> tuple[str, str, int]:
    """(gpu or shard, model or "", how many of each node)."""
    parts = [part for part in re.sub(r"\([^)]*\)", "", text).split(",") if part and part != "N/A"]
    if len(parts) != 1:
        what = f"it asks for {text}" if parts else "it asks for no GPU"
        raise NotOurs(f"{what}: write either --gres=gpu:N or --gres=shard:N for each node")
    found = _PART.fullmatch(parts[0])
    if found is None or int(found[3] or 1) < 1:
        raise NotOurs(f"it asks for {text}: write --gres=gpu:N, --gres=gpu:MODEL:N or --gres=shard:N for each node")
    return found[1], found[2] or "", int(found[3] or 1)


def node_of(node: SlurmNode, settings: Settings) -> Node:
    """With devices that are called NODE/0, NODE/1, ...: which of its devices a job has, Slurm chooses."""
    devices = tuple(
        Device(device_name(node.name, i), i, node.gpu_model, "", MEMORY_BYTES, 1, False, 0, GRANULE_BYTES)
        for i in range(node.gpus)
    )
    cpu_milli = node.cpus * 1000 or NEVER_NS
    switches = settings.switches.get(node.name, ())
    groups = (0,) * node.gpus
    return Node(
        node.name, devices, cpu_milli, NEVER_NS, node.gpu_model, groups, switches=switches, told_bytes=node.memory_bytes
    )


def device_name(node: str, index: int) -> str:
    return f"{node}/{index}"


def objection(node: SlurmNode, settings: Settings, others_have_shards: bool) -> str:
    """Why nothing is placed on a node, whatever Slurm says; "" = it is used. A Slurm without shards gives out whole
    GPUs alone; where some nodes have shards, a part of a GPU would wait for ever on one that has none."""
    if not node.gpus:
        return f"node {node.name} has no GPU (Gres in slurm.conf)"
    if node.gpus > GPUS_MAX:
        return f"node {node.name} has {node.gpus} GPUs: {GPUS_MAX} is the limit"
    wanted = node.gpus * settings.shards_per_device
    if node.shards != wanted and (node.shards or others_have_shards):
        if not node.is_registered:
            return f"node {node.name} has not registered: slurmctld does not know its shards yet"
        text = f"node {node.name} has {node.shards} shards for {node.gpus} GPUs"
        return f"{text}: write Gres=gpu:{node.gpus},shard:{wanted} in slurm.conf, as on the other nodes"
    return ""
