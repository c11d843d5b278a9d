/* shares.c - see shares.h. Mirrors models/arbiter/policy.py. */
#include "arbiter/shares.h"

#include <string.h>

#define STOPPED_NS (50ull * VG_CORE_MS) /* a process that has not noticed its closed gate for this long is stopped */
#define CARRIED_MAX_NS (20 * VG_CORE_MS)
/* A slice that reports completed work less often than this is silent: it does not say which slice had the device. */
#define SILENT_NS (10ull * VG_CORE_MS)
/* Run time after which the reported part of a slice's time is known. */
#define REPORTED_NS (50ull * VG_CORE_MS)
/* Reported work beyond the time that there was is remitted, up to one part in this many of what a slice reports. */
#define REMITTED_PART 7
#define UNEXPLAINED_MAX_NS (20 * VG_CORE_MS)
/* Least cost of a turn that keeps others waiting: what the hand-over takes; and if the slice has reported little work
 * for its last turns. */
#define TURN_LEAST_NS (VG_CORE_MS / 4)
#define TURN_IDLE_NS VG_CORE_MS
/* So much may be reported of one that is idle: late, and of time that was counted before it was known to be idle. */
#define REPORTABLE_IDLE_NS (2 * VG_CORE_LATE_REPORTED_NS)
#define LATE_STEP_NS (1ull * VG_CORE_MS)
#define RENEWED_BY_WORK 5 /* how much faster reported work fills the bucket of words than time does */

static int64_t part(uint64_t ns, uint32_t ppm) {
  return (int64_t)(ns * ppm / VG_CORE_PPM);
}

bool vg_core_lately_active(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!slice->present || !slice->in.attached) return false;
  return vg_core_active(slice) || (slice->step.last_active_ns && now_ns < slice->step.last_active_ns + VG_CORE_IDLE_NS);
}

void vg_core_sum_slot(struct vg_core *core) {
  core->slot_ppm = 0;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].saturating) core->slot_ppm += core->slices[i].out.entitlement_ppm;
}

int64_t vg_core_slot_mean(const struct vg_core *core) {
  int64_t total_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_in_slot(slice)) continue;
    int64_t ahead_ns = (int64_t)(slice->slot.virtual_ns - core->floor_ns);
    total_ns += ahead_ns / VG_CORE_MILLI * slice->out.entitlement_ppm / VG_CORE_MILLI;
  }
  return core->slot_ppm ? total_ns * VG_CORE_MILLI / core->slot_ppm * VG_CORE_MILLI : 0;
}

int64_t vg_core_lag(const struct vg_core *core, const struct vg_core_slice *slice, int64_t slot_mean_ns) {
  if (!slice->saturating) return slice->free.lag_ns;
  int64_t ahead_ns = (int64_t)(slice->slot.virtual_ns - core->floor_ns) - slot_mean_ns;
  int64_t part_ns = core->slot_lag_ns * slice->out.entitlement_ppm / core->slot_ppm;
  part_ns -= ahead_ns / VG_CORE_MILLI * slice->out.entitlement_ppm / VG_CORE_MILLI;
  return vg_core_within(part_ns, VG_CORE_DEBT_MAX_NS);
}

void vg_core_count_lately(struct vg_core *core) {
  core->recent_active = 0;
  for (int i = 0; i < core->slice_count; i++)
    core->recent_active += vg_core_lately_active(&core->slices[i], core->last_ns);
}

int64_t vg_core_cap_needed(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->gate.state == VG_CORE_OPEN) return 0;
  uint64_t worth_ns = core->params.quantum_min_ns;
  if (slice->saturating && vg_core_others_active(core, slice)) worth_ns = core->params.quantum_ns / 2;
  return vg_core_min((int64_t)worth_ns, vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli) / 2);
}

bool vg_core_is_caught(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_led(slice) && slice->gate.state == VG_CORE_OVERLAP &&
         core->last_ns >= slice->gate.close_ns + VG_CORE_RESCUE_NS;
}

bool vg_core_is_rescued(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_led(slice) && slice->gate.state == VG_CORE_OPEN && core->last_ns < slice->gate.rescue_ns;
}

bool vg_core_below_maximum(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->params.paused) return false;
  if (vg_core_uncapped(slice) || slice->bucket.cap_ns > vg_core_cap_needed(core, slice)) return true;
  return vg_core_is_caught(core, slice) || vg_core_is_rescued(core, slice);
}

/* Another device's arbiter keeps its gang from running. */
static bool is_stopped(const struct vg_core_slice *slice) {
  if (!vg_core_led(slice)) return false;
  return vg_core_follows(slice) && slice->saturating ? !slice->in.gang_go : slice->in.gang_stop;
}

bool vg_core_may_run(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_below_maximum(core, slice) && !is_stopped(slice);
}

bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && vg_core_in_slot(other) && vg_core_waits(other) && vg_core_may_run(core, other)) return true;
  }
  return false;
}

/* ---- charging ---- */

bool vg_core_shares_device(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!slice->present || !slice->saturating || slice->gate.state == VG_CORE_SHUT) return false;
  bool rescued = (slice->out.word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
  return slice->gate.state != VG_CORE_OVERLAP || rescued || slice->in.noticed ||
         now_ns < slice->gate.close_ns + STOPPED_NS;
}

/* Charges lag and virtual time, which decide which slice runs next; not the maximum. */
static void charge_share(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  slice->demand.window_work_ns += used_ns;
  if (!slice->saturating) {
    slice->free.lag_ns = vg_core_max(slice->free.lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    slice->free.owed_ns = vg_core_max(slice->free.owed_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    return;
  }
  slice->slot.unpaid_ns -= used_ns;
  uint64_t most_ns = core->floor_ns + (uint64_t)VG_CORE_DEBT_MAX_NS * VG_CORE_PPM / slice->out.entitlement_ppm;
  uint64_t next_ns = slice->slot.virtual_ns + (uint64_t)used_ns * VG_CORE_PPM / slice->out.entitlement_ppm;
  if (next_ns > most_ns) next_ns = most_ns;
  if (next_ns > slice->slot.virtual_ns) slice->slot.virtual_ns = next_ns;
  core->slot_lag_ns = vg_core_max(core->slot_lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
}

/* What a turn costs beyond what was used is no usage of the device: it counts neither for the maximum nor in the
 * reported usage. idle_ns: the part of used_ns in which the slice kept the device from others with nothing to run; it
 * is no usage that is reported. */
static void charge_less(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns, int64_t idle_ns) {
  int64_t before_ns = vg_core_max(slice->turn.least_ns, slice->turn.used_ns);
  slice->turn.used_ns += used_ns;
  charge_share(core, slice, vg_core_max(slice->turn.least_ns, slice->turn.used_ns) - before_ns);
  slice->charged_ns += used_ns - idle_ns;
  if (slice->charged_ns > (int64_t)slice->stats.charged_ns) slice->stats.charged_ns = (uint64_t)slice->charged_ns;
  slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
  slice->bucket.guarantee_ns -= used_ns - idle_ns;
  if (slice->bucket.guarantee_ns < 0) {
    if (slice->params.max_milli > slice->params.min_milli) /* else nothing can be borrowed */
      slice->stats.borrowed_ns += (uint64_t)-slice->bucket.guarantee_ns;
    slice->bucket.guarantee_ns = 0;
  }
  if (slice->saturating) slice->slot.over_cap_ns -= used_ns;
}

static void charge(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  charge_less(core, slice, used_ns, 0);
}

void vg_core_begin_turn(struct vg_core *core, struct vg_core_slice *slice) {
  bool has_credit = slice->turn.credit_ns >= VG_CORE_TURN_CREDIT_NS;
  if (has_credit) slice->turn.credit_ns -= VG_CORE_TURN_CREDIT_NS;
  slice->turn.used_ns = 0;
  slice->turn.least_ns = has_credit ? TURN_LEAST_NS : TURN_IDLE_NS;
  charge_share(core, slice, slice->turn.least_ns);
  if (!has_credit) /* its page reports no work: its maximum bounds how often others wait without result */
    slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - slice->turn.least_ns, -VG_CORE_DEBT_MAX_NS);
}

bool vg_core_any_waits(const struct vg_core *core, const struct vg_core_slice *but) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other == but || !other->present || !other->in.wants || other->gate.state == VG_CORE_OPEN) continue;
    if (vg_core_may_run(core, other)) return true;
  }
  return false;
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

/* Without the time that context switches take while several slices run, roughly. */
static int64_t less_changes(uint64_t ns) {
  return (int64_t)(ns - ns / 32);
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
        vg_core_within(slice->report.over_reported_ns + (int64_t)reported_ns[i] - part_ns, UNEXPLAINED_MAX_NS);
    int64_t remittable_ns = slice->report.remittable_ns + (int64_t)reported_ns[i] / REMITTED_PART;
    slice->report.remittable_ns = vg_core_min(remittable_ns, UNEXPLAINED_MAX_NS);
    over_ns += vg_core_max(0, slice->report.over_reported_ns);
  }
  busy_ns = vg_core_least(passed_ns, busy_ns);
  bool believable = is_believable(core, all_reported_ns, busy_ns);
  core->excess_ns -= ran > 1 ? less_changes(busy_ns) : (int64_t)busy_ns;
  core->excess_ns = vg_core_within(core->excess_ns, UNEXPLAINED_MAX_NS);
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

/* Compares the time in which several slices ran, or one while another one waited, with the work that they report. */
static void weigh(struct vg_core *core, uint64_t passed_ns, uint64_t now_ns) {
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
  core->unexplained_ns = vg_core_within(left_ns, UNEXPLAINED_MAX_NS);
}

/* What is charged beyond the completed work that a slice reports, as far as no slice's reports explain the time: up to
 * its provisional charge; for the slice that reports least of its time, up to all time in which it had work
 * outstanding; up to half of its provisional charge where saturating slices do not report what they complete. */
static int64_t doubted(struct vg_core *core, const struct vg_core_slice *slice, int64_t done_ns) {
  if (!core->slot_reports_work) return vg_core_max(0, slice->account.provisional_ns / 2 - done_ns);
  int64_t most_ns =
      reported_ppm(slice) <= core->least_reported_ppm ? slice->account.outstanding_ns : slice->account.provisional_ns;
  int64_t doubted_ns = vg_core_max(0, vg_core_min(most_ns - done_ns, core->unexplained_ns));
  core->unexplained_ns -= doubted_ns;
  return doubted_ns;
}

/* How much work may have been charged before it is reported: of one that has nothing on the device only a little. */
static uint64_t ahead_most(const struct vg_core_slice *slice) {
  return slice->in.outstanding ? VG_CORE_DEBT_MAX_NS : VG_CORE_LATE_REPORTED_NS;
}

/* Charges a free slice, provisionally, its contexts' part of the time in which it had work outstanding; corrects that
 * by its completed work when none is outstanding, and every tick: hardware time-slicing is uneven over a short time. */
static void charge_free(struct vg_core *core, struct vg_core_slice *slice, uint32_t contexts, uint64_t passed_ns,
                        uint64_t now_ns) {
  int64_t used_ns = (int64_t)(slice->step.busy_ns * slice->step.contexts / (contexts ? contexts : 1));
  int64_t idle_ns = 0;
  if (slice->free.has_precedence && vg_core_any_waits(core, slice)) {
    used_ns = (int64_t)passed_ns; /* it keeps the device from them, whatever it reports */
    idle_ns = (int64_t)(passed_ns - slice->step.busy_ns);
  }
  if (slice->step.busy_ns) { /* time for which it keeps others waiting with nothing to run is not corrected later */
    slice->account.provisional_ns += used_ns;
    slice->account.outstanding_ns += vg_core_max(used_ns, (int64_t)slice->step.busy_ns);
  }
  slice->account.beside_slot |= core->slot_occupied && slice->step.busy_ns;
  bool alone = slice->free.holds || !vg_core_any_waits(core, slice);
  if (slice->step.contexts == contexts && alone) slice->account.alone_ns += (int64_t)slice->step.busy_ns;
  if (core->slot_occupied) core->free_used_ns += used_ns;
  int64_t done_ns = vg_core_max(0, (int64_t)(slice->report.done_ns - slice->account.done_seen_ns));
  if (slice->free.holds && !slice->free.has_precedence && vg_core_any_waits(core, slice)) {
    idle_ns = (int64_t)(passed_ns - slice->step.busy_ns);
    used_ns += idle_ns; /* it left the device idle while others waited for it */
  }
  used_ns -= slice->report.remitted_ns;
  slice->report.remitted_ns = 0;
  bool due = (core->slot_reports_work || done_ns) && now_ns >= slice->account.settled_ns + VG_CORE_TICK_NS;
  if (!slice->in.outstanding || due) {
    int64_t reported_ns = done_ns + doubted(core, slice, done_ns);
    int64_t ahead_ns = vg_core_max(0, slice->account.alone_ns / 2 - reported_ns);
    int64_t more_ns = reported_ns + ahead_ns - slice->account.provisional_ns;
    used_ns += more_ns;
    if (slice->account.beside_slot) core->free_used_ns += more_ns; /* what it has used more, the slot has used less */
    slice->account.beside_slot = false;
    slice->account.provisional_ns = slice->account.outstanding_ns = slice->account.alone_ns = 0;
    /* What was charged ahead is not charged again when it completes, also where it waits for something else first. */
    if (slice->account.done_seen_ns < slice->report.done_ns) slice->account.done_seen_ns = slice->report.done_ns;
    slice->account.done_seen_ns =
        vg_core_least(slice->account.done_seen_ns + (uint64_t)ahead_ns, slice->report.done_ns + ahead_most(slice));
    slice->account.settled_ns = now_ns;
  }
  charge_less(core, slice, used_ns, idle_ns);
}

/* The part of a slice's time that it shares with others in the slot: at most as long as their work was outstanding. Of
 * a short step all of it; a step beside a drain is long only if the thread ran late, and then most of it belongs to one
 * of them. */
static int64_t overlapped(const struct vg_core *core, const struct vg_core_slice *self, int64_t used_ns,
                          uint64_t passed_ns, uint64_t now_ns) {
  uint64_t most_ns = 0;
  if (passed_ns < LATE_STEP_NS) return used_ns;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other == self || !vg_core_shares_device(other, now_ns)) continue;
    uint64_t beside_ns = other->step.contexts ? other->step.busy_ns : passed_ns;
    if (beside_ns > most_ns) most_ns = beside_ns;
  }
  return vg_core_min(used_ns, (int64_t)most_ns);
}

/* Splits the time that free slices have left among the saturating slices that occupied the device. Each is charged wall
 * time while another slice waits for the slot, from which it keeps the device; else its time with work outstanding. */
static void charge_slot(struct vg_core *core, uint64_t passed_ns, uint64_t now_ns) {
  if (!core->slot_occupied) return;
  uint32_t contexts = 0;
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_shares_device(&core->slices[i], now_ns))
      contexts += core->slices[i].step.contexts ? core->slices[i].step.contexts : 1;
  int64_t taken_ns = vg_core_within(core->free_used_ns, (int64_t)passed_ns);
  core->free_used_ns = vg_core_within(core->free_used_ns - taken_ns, CARRIED_MAX_NS);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_shares_device(slice, now_ns)) continue;
    int64_t used_ns = (int64_t)slice->step.busy_ns;
    if (vg_core_keeps_others_waiting(core, slice)) {
      used_ns = (int64_t)passed_ns;
      bool over = slice->in.quiet && slice->gate.state != VG_CORE_OPEN;
      if (over && slice->in.drained_ns < now_ns) /* the drain was noticed later than it happened */
        used_ns = vg_core_max(0, (int64_t)(slice->in.drained_ns - core->last_ns));
    }
    uint32_t own = slice->step.contexts ? slice->step.contexts : 1;
    used_ns = vg_core_max(0, used_ns - taken_ns);
    int64_t split_ns = overlapped(core, slice, used_ns, passed_ns, now_ns);
    used_ns -= split_ns - split_ns * own / contexts;
    charge_less(core, slice, used_ns, vg_core_max(0, used_ns - (int64_t)slice->step.busy_ns));
    /* Estimates of work that other saturating slices overlapped include their time. What free slices took is no reason:
     * they say themselves how much that was. */
    if (slice->gate.state == VG_CORE_OVERLAP)
      slice->slot.over_cap_ns -= (int64_t)slice->step.busy_ns * (contexts - own) / contexts;
  }
}

/* Charges a saturating slice completed work that it reports and has not been charged, whatever other slices report: in
 * full for its maximum, by half for its share, since estimates taken beside others may be twice too long. In full is
 * without the time in which other saturating slices overlapped its work. */
static void charge_unpaid(struct vg_core *core, struct vg_core_slice *slice) {
  uint64_t since_ns = core->last_ns > slice->report.reported_at_ns ? core->last_ns - slice->report.reported_at_ns : 0;
  int64_t late_ns = VG_CORE_LATE_REPORTED_NS + (int64_t)since_ns;
  slice->slot.unpaid_ns = vg_core_max(slice->slot.unpaid_ns, -late_ns);
  slice->slot.over_cap_ns = vg_core_max(slice->slot.over_cap_ns, -late_ns);
  charge(core, slice, vg_core_max(0, slice->slot.unpaid_ns - VG_CORE_LATE_REPORTED_NS));
  int64_t more_ns = vg_core_max(0, slice->slot.over_cap_ns - VG_CORE_LATE_REPORTED_NS);
  slice->slot.over_cap_ns -= more_ns;
  slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - more_ns, -VG_CORE_DEBT_MAX_NS);
}

/* Depth of the token bucket of a maximum. Of idle time only a little is saved up. A slice that is active here (a gang's
 * leader may be so for its other devices), and kept from its guarantee, accrues a deficit instead, and may make up for
 * it; time beyond the guarantee is not made up. */
static int64_t cap_depth(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t active_ns) {
  int64_t depth_ns = vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli);
  int64_t own_ns = vg_core_scaled(VG_CORE_DEBT_MAX_NS, slice->params.min_milli);
  return vg_core_active(slice) && active_ns ? vg_core_max(depth_ns, own_ns) : depth_ns;
}

/* Counts reported work, at most as much as the time with work outstanding: the slice's processes together cannot
 * complete more. Some of that time may be reported later. */
static void count_done(struct vg_core_slice *slice, uint64_t passed_ns) {
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

static bool another_in_slot(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && vg_core_in_slot(&core->slices[i])) return true;
  return false;
}

static void accrue(const struct vg_core *core, struct vg_core_slice *slice, uint64_t passed_ns) {
  slice->step.busy_ns = vg_core_least(slice->in.busy_total_ns - slice->step.busy_seen_ns, passed_ns);
  slice->step.busy_seen_ns = slice->in.busy_total_ns;
  /* A page that contradicts itself: work is outstanding and takes no time. */
  if (!slice->step.busy_ns && slice->in.attached && slice->step.was_running && !slice->in.counted_ahead)
    slice->step.busy_ns = passed_ns;
  count_done(slice, passed_ns);
  slice->step.was_outstanding = slice->in.outstanding;
  slice->step.was_running = slice->in.running > 0; /* a gang's leader has the slot for work on other devices, too */
  slice->step.contexts = 0;
  if (slice->step.busy_ns) slice->step.contexts = slice->in.running ? slice->in.running : 1;
  uint64_t active_ns = vg_core_least(slice->in.active_total_ns - slice->step.active_seen_ns, passed_ns);
  slice->step.active_seen_ns = slice->in.active_total_ns;
  int64_t deepest_ns = cap_depth(core, slice, active_ns);
  if (!active_ns && slice->in.attached && slice->step.was_active) active_ns = passed_ns;
  /* Behind the gate that cut its work off, a slice prepares what it would have prepared while that work ran. */
  bool prepares = slice->gate.state == VG_CORE_SHUT && slice->gate.cut_off && another_in_slot(core, slice);
  if (!prepares) slice->demand.window_idle_ns += passed_ns - active_ns;
  const struct vg_arbiter_params *params = &core->params;
  uint32_t min_milli = slice->params.min_milli, max_milli = slice->params.max_milli;
  if (vg_core_lately_active(slice, core->last_ns)) /* a deficit outlasts a short pause, and does not grow in it */
    deepest_ns = vg_core_max(deepest_ns, slice->bucket.cap_ns);
  slice->bucket.cap_ns = vg_core_min(slice->bucket.cap_ns + vg_core_scaled(passed_ns, max_milli), deepest_ns);
  slice->bucket.guarantee_ns = vg_core_min(slice->bucket.guarantee_ns + vg_core_scaled(passed_ns, min_milli),
                                           vg_core_scaled(params->guarantee_depth_ns, min_milli));
  if (slice->saturating && !slice->step.was_active)
    slice->slot.virtual_ns += passed_ns; /* the entitlement of an idle slice is not saved up */
  if (slice->saturating) return;
  /* A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more. */
  uint32_t ppm = slice->params.latency ? slice->out.entitlement_ppm * 101 / 100 : slice->out.entitlement_ppm;
  deepest_ns = vg_core_max(part(params->guarantee_depth_ns, slice->out.entitlement_ppm), slice->free.lag_ns);
  if (vg_core_active(slice)) /* the slot has used what it is short of, since launched work cannot be taken back */
    deepest_ns = vg_core_max(deepest_ns, -core->slot_lag_ns);
  slice->free.lag_ns = vg_core_min(slice->free.lag_ns + part(passed_ns, ppm), deepest_ns);
  if (!vg_core_may_begin_turn(slice)) /* it is not owed what it does not take */
    slice->free.lag_ns = vg_core_min(slice->free.lag_ns, VG_CORE_SHORT_NS);
  int64_t owed_ns = slice->free.owed_ns + part(passed_ns, min_milli * VG_CORE_MILLI * 101 / 100);
  slice->free.owed_ns = vg_core_min(owed_ns, vg_core_scaled(params->guarantee_depth_ns, min_milli));
}

void vg_core_charge(struct vg_core *core, uint64_t now_ns) {
  uint64_t passed_ns = now_ns - core->last_ns;
  uint32_t contexts = 0;
  core->slot_occupied = false;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    accrue(core, slice, passed_ns);
    contexts += slice->step.contexts;
    core->slot_occupied |= vg_core_shares_device(slice, now_ns);
  }
  weigh(core, passed_ns, now_ns);
  vg_core_sum_slot(core); /* slices may have been removed since */
  core->slot_lag_ns = vg_core_min(core->slot_lag_ns + part(passed_ns, core->slot_ppm),
                                  part(core->params.guarantee_depth_ns, core->slot_ppm));
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && !core->slices[i].saturating)
      charge_free(core, &core->slices[i], contexts, passed_ns, now_ns);
  charge_slot(core, passed_ns, now_ns);
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].saturating) charge_unpaid(core, &core->slices[i]);
}
