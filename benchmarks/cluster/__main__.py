"""The queue over many nodes: what a decision costs, and what placement by models of GPUs, of jobs and by the network is
worth, beside a queue on each node.

Clusters are simulated, with the machine that `vgpu cluster` runs. A missed goal is a figure like any other: it is
shown, kept, and makes the exit code 1.
"""

from __future__ import annotations

from benchmarks.cluster import decisions, models, packing, topology
from benchmarks.rows import Bench, Row, main

LEGEND = """\
Decisions are those of the controller's own step over 1,000 nodes: Slurm's jobs and nodes as they are seen, the queue's
machine, orders. Traces are the shipped ones; they name no models of jobs (or one for all), so these are drawn with a
seed from the 26 of Gavel's measured table, which also has the speeds: alone on K80, P100 and V100, with several GPUs on
one node and over several. Durations are those on the model of GPU where a job is fastest. A queue on each node gets the
jobs as they come: in turn, or where they would end first, by durations and speeds that nobody knows so well. In the
rows with such queues jobs of more GPUs than a node has are left out, and a job has its GPUs on one node where it does
not say "on several nodes". Fractions are those of openb's pods of at most a day, every third, with their CPU and RAM;
in Philly's traces jobs of one GPU ask for what such a pod asks for, drawn.
Above one switch the part of a step that goes over the network takes four times as long: an assumption."""
ROWS = {
    "decisions": Row(
        "1,000 nodes of 8 GPUs, 100,000 waiting jobs: a decision; a look with nothing new", decisions.figures
    ),
    "models": Row("placement by model of GPU beside placement that does not know it", models.figures),
    "consolidation": Row("gangs of models that lose by several nodes, together or anywhere", models.consolidation),
    "fractions": Row("fractions of GPUs over all nodes, beside a queue on each node", packing.fractions),
    "one_queue": Row("models of GPUs and gangs over all nodes, beside a queue on each node", packing.one_queue),
    "topology": Row("gangs over several nodes below one switch, or anywhere", topology.figures),
}
BENCH = Bench("cluster", "Cluster", __doc__ or "", "no device: jobs and nodes of a SIMULATED cluster", LEGEND, ROWS)

if __name__ == "__main__":
    raise SystemExit(main(BENCH))
