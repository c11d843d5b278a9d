/* completed.c - see completed.h. */
#include "arbiter/completed.h"

#include <stddef.h>

#include "arbiter/maximum.h"

/* A slice that reports completed work less often than this is silent: it does not say which slice had the device. */
#define SILENT_NS (10ull * VG_CORE_MS)
/* Run time after which the reported part of a slice's time is known. */
#define REPORTED_NS (50ull * VG_CORE_MS)
/* Reported work beyond the time that there was is remitted, up to one part in this many of what a slice reports. */
#define REMITTED_PART 7
#define UNEXPLAINED_MAX_NS (20 * VG_CORE_MS)
/* So much may be reported of one that is idle: late, and of time that was counted before it was known to be idle. */
#define REPORTABLE_IDLE_NS (2 * VG_CORE_LATE_REPORTED_NS)
#define RENEWED_BY_WORK 5 /* how much faster reported work fills the bucket of words than time does */

/* Without the time that context switches take while several slices run, roughly. */
static int64_t less_changes(uint64_t ns) {
  return (int64_t)(ns - ns / 32);
}

static uint32_t reported_ppm(const struct vg_core_slice *slice) {
  uint64_t ppm =
      slice->report.recent_reported_ns * VG_CORE_PPM / (slice->report.recent_run_ns ? slice->report.recent_run_ns : 1);
  return (uint32_t)vg_core_least(VG_CORE_PPM, ppm);
}

/* Reports little of what it completes, or seldom: its reports do not say which slice had the device. */
static bool is_silent(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t since_ns = core->last_ns > slice->report.reported_at_ns ? core->last_ns - slice->report.reported_at_ns : 0;
  bool seldom = slice->report.reported_after_ns > SILENT_NS || since_ns > SILENT_NS;
  return slice->step.contexts &&
         (seldom || (slice->report.recent_run_ns > REPORTED_NS && reported_ppm(slice) < VG_CORE_PPM / 4));
}

/* Takes over a slice's report; returns the work that it has completed. A saturating slice that reports only a part of
 * its time is known from the times when it ran alone; its reports are scaled up by that. */
static uint64_t note_reported(const struct vg_core *core, struct vg_core_slice *slice, int ran, uint64_t now_ns) {
  uint64_t more_ns = vg_core_least(slice->report.done_ns - slice->report.done_reported_ns, VG_CORE_DEBT_MAX_NS);
  slice->report.done_reported_ns = slice->report.done_ns;
  if (more_ns) slice->report.reported_after_ns = now_ns - slice->report.reported_at_ns;
  if (more_ns || !slice->step.contexts) slice->report.reported_at_ns = now_ns;
  if (slice->step.contexts && (!slice->saturating || ran == 1)) {
    slice->report.recent_run_ns += slice->step.busy_ns;
    slice->report.recent_reported_ns = vg_core_least(slice->report.recent_reported_ns + more_ns, VG_CORE_DEBT_MAX_NS);
  }
  if (slice->report.recent_run_ns > 2 * REPORTED_NS) {
    slice->report.recent_run_ns /= 2;
    slice->report.recent_reported_ns /= 2;
  }
  if (slice->saturating) {
    bool exaggerates = slice->report.recent_reported_ns > slice->report.recent_run_ns && slice->report.recent_run_ns &&
                       vg_core_others_active(core, slice); /* alone it reports late */
    int64_t own_ns =
        (int64_t)(exaggerates ? more_ns * slice->report.recent_run_ns / slice->report.recent_reported_ns : more_ns);
    slice->slot.unpaid_ns += own_ns / 2;
    slice->slot.over_cap_ns += own_ns;
  }
  if (!slice->saturating || slice->report.recent_run_ns <= REPORTED_NS) return more_ns;
  uint64_t ppm = reported_ppm(slice) > VG_CORE_PPM / 4 ? reported_ppm(slice) : VG_CORE_PPM / 4;
  return more_ns * VG_CORE_PPM / ppm;
}

/* Have all slices together lately reported at most a quarter more than the time that there was? Estimates are never
 * further off: beyond that a slice reports falsely. */
static bool is_believable(struct vg_core *core, uint64_t reported_ns, uint64_t available_ns) {
  core->available_ns += available_ns;
  core->all_reported_ns += reported_ns;
  if (core->available_ns > 2 * REPORTED_NS) {
    core->available_ns /= 2;
    core->all_reported_ns /= 2;
  }
  return 4 * core->all_reported_ns <= 5 * core->available_ns + 4 * (uint64_t)VG_CORE_LATE_REPORTED_NS;
}

static void forget_excess(struct vg_core *core) {
  core->excess_ns = 0;
  for (int i = 0; i < core->slice_count; i++) core->slices[i].report.over_reported_ns = 0;
}

/* Estimates taken beside others may be too long. What all report together is not charged beyond the time that there
 * was; slices that reported more than their contexts' part are charged less, pro rata. Not while a saturating slice
 * runs: the slot is charged what free slices leave. A slice that is alone reports no more than its time, some of it
 * late. */
static void remit(struct vg_core *core, const uint64_t *reported_ns, uint64_t passed_ns) {
  uint64_t busy_ns = 0, all_reported_ns = 0;
  uint32_t contexts = 0;
  int ran = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || !slice->step.contexts) continue;
    if (slice->saturating) return;
    ran++;
    contexts += slice->step.contexts;
    busy_ns += slice->step.busy_ns;
  }
  int64_t over_ns = 0;
  if (core->recent_active <= 1) {
    forget_excess(core);
    return;
  }
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    all_reported_ns += reported_ns[i];
    core->excess_ns += (int64_t)reported_ns[i];
    int64_t part_ns = less_changes(slice->step.busy_ns * slice->step.contexts / (contexts ? contexts : 1));
    slice->report.over_reported_ns =
        vg_core_clamp_ns(slice->report.over_reported_ns + (int64_t)reported_ns[i] - part_ns, UNEXPLAINED_MAX_NS);
    int64_t remittable_ns = slice->report.remittable_ns + (int64_t)reported_ns[i] / REMITTED_PART;
    slice->report.remittable_ns = vg_core_min(remittable_ns, UNEXPLAINED_MAX_NS);
    over_ns += vg_core_max(0, slice->report.over_reported_ns);
  }
  busy_ns = vg_core_least(passed_ns, busy_ns);
  bool believable = is_believable(core, all_reported_ns, busy_ns);
  core->excess_ns -= ran > 1 ? less_changes(busy_ns) : (int64_t)busy_ns;
  core->excess_ns = vg_core_clamp_ns(core->excess_ns, UNEXPLAINED_MAX_NS);
  int64_t remitted_ns = believable ? vg_core_max(0, vg_core_min(core->excess_ns, over_ns)) : 0;
  core->excess_ns -= remitted_ns;
  if (!remitted_ns) return;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    slice->report.remitted_ns = vg_core_min(remitted_ns * vg_core_max(0, slice->report.over_reported_ns) / over_ns,
                                            slice->report.remittable_ns);
    slice->report.remittable_ns -= slice->report.remitted_ns;
    slice->report.over_reported_ns -= slice->report.remitted_ns;
  }
}

void vg_core_weigh(struct vg_core *core, uint64_t passed_ns, uint64_t now_ns) {
  uint64_t reported_ns = 0, busy_ns = 0, each_reported_ns[VG_SLICES_MAX] = {0};
  const struct vg_core_slice *runs = NULL;
  int ran = 0;
  uint32_t least_ppm = VG_CORE_PPM;
  bool found = false;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || !slice->step.contexts) continue;
    if (!ran++) runs = slice;
    if (slice->step.busy_ns > busy_ns) busy_ns = slice->step.busy_ns;
  }
  core->slot_reports_work = true;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    each_reported_ns[i] = note_reported(core, slice, ran, now_ns);
    reported_ns += each_reported_ns[i];
    if (slice->saturating) {
      if (is_silent(core, slice)) core->slot_reports_work = false;
    } else if (slice->report.recent_run_ns && vg_core_lately_active(slice, core->last_ns)) {
      least_ppm = reported_ppm(slice) < least_ppm ? reported_ppm(slice) : least_ppm;
      found = true;
    }
  }
  remit(core, each_reported_ns, passed_ns);
  core->least_reported_ppm = found ? least_ppm : 0;
  bool alone = ran == 1 && !runs->saturating && vg_core_any_waits(core, runs);
  if (!core->slot_reports_work || !(alone || ran > 1)) return;
  /* Context switches; with one slice the delay from the end of its work until that is noticed. */
  uint64_t overhead_ns = busy_ns / (alone ? 8 : 16);
  int64_t left_ns = core->unexplained_ns + (int64_t)(busy_ns - overhead_ns) - (int64_t)reported_ns;
  core->unexplained_ns = vg_core_clamp_ns(left_ns, UNEXPLAINED_MAX_NS);
}

int64_t vg_core_take_unexplained_ns(struct vg_core *core, const struct vg_core_slice *slice, int64_t done_ns) {
  if (!core->slot_reports_work) return vg_core_max(0, slice->account.provisional_ns / 2 - done_ns);
  int64_t most_ns =
      reported_ppm(slice) <= core->least_reported_ppm ? slice->account.outstanding_ns : slice->account.provisional_ns;
  int64_t doubted_ns = vg_core_max(0, vg_core_min(most_ns - done_ns, core->unexplained_ns));
  core->unexplained_ns -= doubted_ns;
  return doubted_ns;
}

void vg_core_count_done(struct vg_core_slice *slice, uint64_t passed_ns) {
  slice->report.reportable_ns = vg_core_least(slice->report.reportable_ns + slice->step.busy_ns, VG_CORE_DEBT_MAX_NS);
  if (!slice->in.outstanding && !slice->step.was_outstanding)
    slice->report.reportable_ns = vg_core_least(slice->report.reportable_ns, REPORTABLE_IDLE_NS);
  uint64_t more_ns =
      vg_core_least(slice->in.done_total_ns - slice->report.reported_total_ns, slice->report.reportable_ns);
  slice->report.reported_total_ns += more_ns;
  uint64_t unreported_ns = slice->in.done_total_ns - slice->report.reported_total_ns;
  if (unreported_ns > VG_CORE_LATE_REPORTED_NS)
    slice->report.reported_total_ns += unreported_ns - VG_CORE_LATE_REPORTED_NS;
  slice->report.reportable_ns -= more_ns;
  slice->report.done_ns += more_ns;
  slice->gate.renewed_ns -= vg_core_least(slice->gate.renewed_ns, RENEWED_BY_WORK * more_ns);
  uint64_t refill_ns = passed_ns / (VG_CORE_TURN_REFILL_NS / VG_CORE_TURN_CREDIT_NS);
  slice->turn.credit_ns = vg_core_min(slice->turn.credit_ns + (int64_t)(more_ns + refill_ns),
                                      VG_CORE_TURN_CREDITS * VG_CORE_TURN_CREDIT_NS);
}
