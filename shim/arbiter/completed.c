/* completed.c - see completed.h. */
#include "arbiter/completed.h"

#include <stddef.h>

#include "arbiter/maximum.h"

/* A slice that reports completed work less often than this is silent: it does not say which slice had the device. */
#define SILENT_NS (10ull * VG_CORE_MS)
/* Run time after which the reported part of a slice's time is known. */
#define REPORTED_NS (50ull * VG_CORE_MS)
#define UNEXPLAINED_MAX_NS (20 * VG_CORE_MS)
/* So much may be reported of one that is idle: late, and of time that was counted before it was known to be idle. */
#define REPORTABLE_IDLE_NS (2 * VG_CORE_LATE_REPORTED_NS)
#define RENEWED_BY_WORK 5 /* how much faster reported work fills the bucket of words than time does */

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

void vg_core_weigh(struct vg_core *core, uint64_t now_ns) {
  uint64_t reported_ns = 0, busy_ns = 0;
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
    reported_ns += note_reported(core, slice, ran, now_ns);
    if (slice->saturating) {
      if (is_silent(core, slice)) core->slot_reports_work = false;
    } else if (slice->report.recent_run_ns && vg_core_lately_active(slice, core->last_ns)) {
      least_ppm = reported_ppm(slice) < least_ppm ? reported_ppm(slice) : least_ppm;
      found = true;
    }
  }
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
