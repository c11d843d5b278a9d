/* overlap.c - see overlap.h. */
#include "arbiter/overlap.h"

#include "base/prim.h"

#define KEPT_NS VG_NS_PER_S /* what ended so long ago overlaps nothing that is shown now */
/* How much of the processes' time, beyond what the clock has, may wait for it to be known when they ran. */
#define EXCESS_MOST_NS (100 * VG_NS_PER_MS)
/* How much of what the clock has is taken off where it shows that two ran at the same time: a part, and so much at
 * once. Pages may lie. */
#define CREDIT_PART 4
#define CREDIT_MOST_NS (20 * VG_NS_PER_MS)
#define RUNS_A_LOOK 16  /* that are read of a page at once */
#define RUNS_A_ROUND 32 /* and of all pages of a slice: some 3 us */

/* A set that is full forgets the oldest run: pauses that were joined would count as work. */
static void add_run(struct vg_runs *ran, uint64_t begin_ns, uint64_t end_ns) {
  if (ran->count == VG_RUNS) vg_runs_forget(ran, ran->of[0].end_ns);
  vg_runs_add(ran, begin_ns, end_ns);
}

/* Returns whether the run is done with. It counts only as far as its process has been counted for it: else a second
 * process that shows the same runs would have the first one's time counted for nothing. */
static bool read_run(struct vg_lane *lane, struct vg_process *process, uint64_t begin_ns, uint64_t end_ns,
                     uint64_t now_ns) {
  if (begin_ns < process->run_end_ns) begin_ns = process->run_end_ns;
  if (end_ns > now_ns || end_ns <= begin_ns) return true;
  bool whole = end_ns - begin_ns <= process->unshown_ns || !vg_span_is_late(&process->busy);
  if (!whole)
    end_ns = begin_ns + process->unshown_ns;
  else if (end_ns - begin_ns > process->unshown_ns)
    begin_ns = end_ns - process->unshown_ns;
  lane->overlap_ns += vg_runs_within(&lane->ran, begin_ns, end_ns);
  add_run(&lane->ran, begin_ns, end_ns);
  process->unshown_ns -= end_ns - begin_ns;
  process->run_end_ns = end_ns;
  return whole;
}

/* Returns whether another run may be read. */
static bool read_next(struct vg_lane *lane, struct vg_process *process, uint64_t now_ns) {
  const struct vg_report_device *report = process->report;
  const struct vg_run_shown *shown = &report->runs[process->runs_read % VG_RUNS_SHOWN];
  uint64_t begin_ns = VG_LOAD_RELAXED(&shown->begin_ns), end_ns = VG_LOAD(&shown->end_ns);
  bool is_overwritten = VG_LOAD(&report->run_count) - process->runs_read >= VG_RUNS_SHOWN;
  if (!is_overwritten && !read_run(lane, process, begin_ns, end_ns, now_ns)) return false;
  process->has_lost_runs |= is_overwritten;
  process->runs_read++;
  return true;
}

/* Runs were overwritten before they were read, the others have been read, and nothing runs: of what is left, but for
 * what was counted ahead of what runs later, it will not be known any more when it ran. */
static void lose_unshown(struct vg_lane *lane, struct vg_process *process) {
  const struct vg_span *busy = &process->busy;
  if (!process->has_lost_runs || busy->since_ns || vg_span_is_late(busy)) return;
  process->has_lost_runs = false;
  uint64_t ahead_ns = busy->counted_ns > busy->total_ns ? busy->counted_ns - busy->total_ns : 0;
  if (process->unshown_ns <= ahead_ns) return;
  lane->excess_ns -= vg_core_least(lane->excess_ns, process->unshown_ns - ahead_ns);
  process->unshown_ns = ahead_ns;
}

void vg_overlap_count(struct vg_lane *lane, struct vg_process *process, uint64_t more_ns, uint64_t now_ns) {
  uint64_t count = VG_LOAD(&process->report->run_count);
  lane->more_ns += more_ns;
  process->unshown_ns += more_ns;
  if (!lane->first->next || count < process->runs_read) { /* nothing to overlap with; or the page lies */
    process->runs_read = count;
    process->unshown_ns = 0;
    process->has_lost_runs = false;
  }
  if (count - process->runs_read >= VG_RUNS_SHOWN) {
    process->runs_read = count - VG_RUNS_SHOWN + 1;
    process->has_lost_runs = true;
  }
  for (int i = 0; i < RUNS_A_LOOK && lane->runs_read < RUNS_A_ROUND && process->runs_read != count; i++) {
    lane->runs_read++;
    if (!read_next(lane, process, now_ns)) break;
  }
  process->has_unread_runs = process->runs_read != count;
  if (!process->has_unread_runs) lose_unshown(lane, process);
  if (now_ns > KEPT_NS) vg_runs_forget(&lane->ran, now_ns - KEPT_NS);
}

void vg_overlap_forget(struct vg_lane *lane, const struct vg_process *process) {
  lane->excess_ns -= vg_core_least(lane->excess_ns, process->unshown_ns);
  if (lane->first) return;
  lane->excess_ns = lane->overlap_ns = lane->credit_ns = 0;
  lane->ran.count = 0;
}

/* Whether the overlap of its processes will be known. One of an older libvgpu does not show it. */
static bool shows_runs(const struct vg_lane *lane) {
  for (const struct vg_process *process = lane->first; process; process = process->next)
    if (process->busy.total_ns && !VG_LOAD_RELAXED(&process->report->run_count)) return false;
  return true;
}

/* Whether what has been shown, and not been read, may say how much of the excess is overlap. */
static bool has_unread_runs(const struct vg_lane *lane) {
  for (const struct vg_process *process = lane->first; process; process = process->next)
    if (process->has_unread_runs) return true;
  return false;
}

/* What is lost may not be taken off once more when it shows when it ran. */
static void lose_excess(struct vg_lane *lane) {
  lane->excess_ns = 0;
  for (struct vg_process *process = lane->first; process; process = process->next) process->unshown_ns = 0;
}

/* Takes the overlap off what the clock did not have, and then, as far as there is credit, off what it had. Returns the
 * rest of that. */
static uint64_t take_off(struct vg_lane *lane, uint64_t clock_ns) {
  uint64_t beyond_ns = vg_core_least(lane->overlap_ns, lane->excess_ns);
  lane->excess_ns -= beyond_ns;
  lane->overlap_ns -= beyond_ns;
  lane->credit_ns = vg_core_least(lane->credit_ns + clock_ns / CREDIT_PART, CREDIT_MOST_NS);
  lane->overlap_ns = vg_core_least(lane->overlap_ns, lane->credit_ns);
  uint64_t off_ns = vg_core_least(lane->overlap_ns, clock_ns);
  lane->overlap_ns -= off_ns;
  lane->credit_ns -= off_ns;
  lane->counted_ahead |= off_ns > 0;
  return clock_ns - off_ns;
}

uint64_t vg_overlap_take(struct vg_lane *lane, uint64_t passed_ns) {
  lane->runs_read = 0;
  if (!lane->more_ns && !lane->excess_ns) return 0;
  uint64_t clock_ns = vg_core_least(lane->more_ns, passed_ns);
  lane->excess_ns += lane->more_ns - clock_ns;
  lane->more_ns = 0;
  uint64_t taken_ns = take_off(lane, clock_ns), late_ns = 0;
  if (!has_unread_runs(lane)) late_ns = vg_core_least(lane->excess_ns, passed_ns - taken_ns);
  lane->excess_ns -= late_ns;
  if (lane->excess_ns > EXCESS_MOST_NS || (lane->excess_ns && !shows_runs(lane))) lose_excess(lane);
  return taken_ns + late_ns;
}
