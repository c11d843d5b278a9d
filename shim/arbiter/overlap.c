/* overlap.c - see overlap.h. */
#include "arbiter/overlap.h"

#include "base/prim.h"

#define KEPT_NS VG_NS_PER_S /* what ended so long ago overlaps nothing that is shown now */
#define UNCOUNTED_MOST_NS (10 * (int64_t)VG_NS_PER_S)

/* More of what it has reported is going to be counted. */
static bool is_late(const struct vg_span *busy) {
  return (int64_t)(busy->told_ns - busy->left_out_ns - busy->counted_ns) > 0;
}

/* Returns whether the run is done with. It counts only as far as its process has been counted for it: else a second
 * process that shows the same runs would have the first one's time counted for nothing. */
static bool read_run(struct vg_lane *lane, struct vg_process *process, const struct vg_run_shown *shown,
                     uint64_t now_ns) {
  uint64_t begin_ns = VG_LOAD_RELAXED(&shown->begin_ns), end_ns = VG_LOAD_RELAXED(&shown->end_ns);
  if (begin_ns < process->run_end_ns) begin_ns = process->run_end_ns;
  if (end_ns > now_ns || end_ns <= begin_ns) return true;
  bool whole = end_ns - begin_ns <= process->unshown_ns || !is_late(&process->busy);
  if (!whole)
    end_ns = begin_ns + process->unshown_ns;
  else if (end_ns - begin_ns > process->unshown_ns)
    begin_ns = end_ns - process->unshown_ns;
  lane->uncounted_ns -= (int64_t)vg_runs_within(&lane->ran, begin_ns, end_ns);
  vg_runs_add(&lane->ran, begin_ns, end_ns);
  process->unshown_ns -= end_ns - begin_ns;
  process->run_end_ns = end_ns;
  return whole;
}

void vg_overlap_count(struct vg_lane *lane, struct vg_process *process, uint64_t more_ns, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  uint64_t count = VG_LOAD(&report->run_count);
  lane->uncounted_ns += (int64_t)more_ns;
  process->unshown_ns += more_ns;
  if (process->unshown_ns > UNCOUNTED_MOST_NS) process->unshown_ns = UNCOUNTED_MOST_NS;
  if (!lane->first->next || count < process->runs_read) { /* nothing to overlap with; or the page lies */
    process->runs_read = count;
    process->unshown_ns = 0;
  }
  if (count == process->runs_read) return;
  if (count - process->runs_read > VG_RUNS_SHOWN) process->runs_read = count - VG_RUNS_SHOWN;
  while (process->runs_read < count &&
         read_run(lane, process, &report->runs[process->runs_read % VG_RUNS_SHOWN], now_ns))
    process->runs_read++;
  if (now_ns > KEPT_NS) vg_runs_forget(&lane->ran, now_ns - KEPT_NS);
}

void vg_overlap_forget(struct vg_lane *lane, const struct vg_process *process) {
  int64_t unshown_ns = (int64_t)process->unshown_ns;
  if (lane->uncounted_ns > 0) lane->uncounted_ns -= lane->uncounted_ns < unshown_ns ? lane->uncounted_ns : unshown_ns;
  if (lane->first) return;
  lane->uncounted_ns = 0;
  lane->ran.count = 0;
}

/* Whether the overlap of its processes will be known. One of an older libvgpu does not show it. */
static bool shows_runs(const struct vg_lane *lane) {
  for (const struct vg_process *process = lane->first; process; process = process->next)
    if (process->busy.total_ns && !VG_LOAD_RELAXED(&process->report->run_count)) return false;
  return true;
}

uint64_t vg_overlap_take(struct vg_lane *lane, uint64_t passed_ns) {
  int64_t more_ns = lane->uncounted_ns < (int64_t)passed_ns ? lane->uncounted_ns : (int64_t)passed_ns;
  if (more_ns < 0) more_ns = 0;
  lane->uncounted_ns -= more_ns;
  if (!lane->uncounted_ns) return (uint64_t)more_ns;
  lane->counted_ahead |= lane->uncounted_ns < 0;
  if (lane->uncounted_ns > UNCOUNTED_MOST_NS) lane->uncounted_ns = UNCOUNTED_MOST_NS;
  if (lane->uncounted_ns < -UNCOUNTED_MOST_NS) lane->uncounted_ns = -UNCOUNTED_MOST_NS;
  if (lane->uncounted_ns > 0 && !shows_runs(lane)) lane->uncounted_ns = 0;
  return (uint64_t)more_ns;
}
