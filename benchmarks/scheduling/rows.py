"""The rows of the table: what each runs, its figures, its plots."""

from __future__ import annotations

from benchmarks.rows import Row
from benchmarks.scheduling import (
    estimates,
    learnt,
    live,
    openb,
    openb_models,
    perturbed,
    plots,
    policies,
    scale,
    slides,
    speed,
    users,
)

ROWS = {
    "slides": Row("three jobs on two GPUs, decided once in a unit of time; schedules are known", slides.figures),
    "tiresias": Row("60_job.csv on 8 GPUs; the released simulator's figures", policies.tiresias),
    "muri": Row("400 jobs on 64 GPUs; starvation promotion", policies.muri, plots.completion),
    "ratio": Row("every trace under every policy; FIFO over the best that knows no durations", policies.ratio),
    "perturbed": Row("two traces a little otherwise, 12 times: how much of the ratios is chance", perturbed.row),
    "estimates": Row("srsf where durations are wrong, and where starting and suspending takes time", estimates.row),
    "learnt-short": Row("the order of new queues, its numbers chosen on other traces; an hour", learnt.short_row),
    "learnt": Row("the same with twelve copies of each trace instead of two; two hours", learnt.row),
    "users": Row("the order of new queues with users, who are drawn: what knowing them can bring", users.figures),
    "openb": Row("fractions placed on 6,212 GPUs, 10 seeds; FGD's published curves", openb.row, openb.plot_row),
    "openb-models": Row("the same, 5 to 50 % of the pods asking for GPU models; FGD as released", openb_models.row),
    "openb-learnt": Row("the same with the mix of jobs learnt, as in a queue, beside known", openb_models.learnt_row),
    "live": Row("200 jobs of two users on simulated devices, the daemon killed meanwhile; needs root", live.figures),
    "speed": Row("a trace of 9,953 jobs; a decision by GPUs and by jobs that wait", speed.figures, plots.decisions),
    "changing": Row("a decision at 10,000 jobs under srsf, srtf, fair, ftf, by GPUs", speed.changing),
    "scale": Row("traces of 10,000 to 1,000,000 jobs as a whole: seconds, memory", scale.figures, plots.scale),
}
