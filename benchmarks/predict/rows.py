"""The rows of the table: what each runs, its figures, its plots. What needs torch or scikit-learn imports it itself."""

from __future__ import annotations

from benchmarks.predict import (
    autoscale,
    colocation,
    elastic_queue,
    estimates,
    gpumemnet,
    gpumemnet_ingredients,
    graph_memory,
    live,
    published,
)
from benchmarks.predict import colocation_limits as limits
from benchmarks.predict import colocation_optimum as optimum
from benchmarks.rows import Row

ROWS = {
    "gpumemnet": Row("3,000 measured runs as predicted by who has not seen them, 10 seeds", gpumemnet.figures),
    "graph-memory": Row("the same runs' memory as their graphs alone say it, nothing learnt", graph_memory.figures),
    "published-memory": Row(
        "memory of published networks as their graphs say it, judged on others", published.memory_figures
    ),
    "analytic": Row("utilisation of networks that convolve, by roofline", published.utilisation_figures),
    "ingredients": Row("runs with an ingredient, by who has seen only others", gpumemnet_ingredients.figures),
    "s_k": Row("scaling efficiency of a step from 4 to 5 workers, as the founding slides have it", autoscale.slides),
    "autoscale": Row("the search for a number of workers on seven known scaling curves, also noisy", autoscale.settles),
    "gpu-time": Row("jobs of four hours on these curves against fixed workers, beside the paper's", autoscale.costs),
    "colocation": Row("1,500 one-GPU jobs of Philly's on 16 GPUs, shared by predicted utilisation", colocation.figures),
    "colocation-limits": Row("limits of sharing, each judged on cases that they were not chosen on", limits.figures),
    "colocation-optimum": Row("seven jobs on two GPUs, beside the best of all schedules", optimum.figures),
    "elastic_queue": Row("400 jobs on 64 GPUs, half of them elastic, against rigid FIFO", elastic_queue.figures),
    "estimates": Row("durations of jobs by those like them: how sure, and what backfill gains", estimates.figures),
    "live": Row("a real daemon on a simulated device: workers come and go, a slice follows load", live.figures),
}
