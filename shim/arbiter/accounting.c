/* accounting.c - see accounting.h. */
#include "arbiter/accounting.h"

#include "arbiter/charges.h"
#include "arbiter/completed.h"
#include "arbiter/maximum.h"

#define CARRIED_MAX_NS (20 * VG_CORE_MS)
#define LATE_STEP_NS (1ull * VG_CORE_MS)

/* What its page reports of this step, at most the time that passed. Returns for how long it was active: that a gang's
 * leader is active may be for its other devices. */
static uint64_t note_reports(const struct vg_core *core, struct vg_core_slice *slice, uint64_t passed_ns) {
  slice->step.busy_ns = vg_core_least(slice->in.busy_total_ns - slice->step.busy_seen_ns, passed_ns);
  slice->step.busy_seen_ns = slice->in.busy_total_ns;
  /* A page that contradicts itself: work is outstanding and takes no time. */
  if (!slice->step.busy_ns && slice->in.attached && slice->step.was_running && !slice->in.counted_ahead)
    slice->step.busy_ns = passed_ns;
  vg_core_count_done(slice, passed_ns);
  slice->step.was_outstanding = slice->in.outstanding;
  slice->step.was_running = slice->in.running > 0; /* a gang's leader has the slot for work on other devices, too */
  slice->step.contexts = 0;
  if (slice->step.busy_ns) slice->step.contexts = slice->in.running ? slice->in.running : 1;
  uint64_t reported_ns = vg_core_least(slice->in.active_total_ns - slice->step.active_seen_ns, passed_ns);
  uint64_t active_ns = reported_ns;
  slice->step.active_seen_ns = slice->in.active_total_ns;
  if (!active_ns && slice->in.attached && slice->step.was_active) active_ns = passed_ns;
  /* Behind the gate that cut its work off, a slice prepares what it would have prepared while that work ran. */
  bool prepares = slice->gate.state == VG_CORE_SHUT && slice->gate.cut_off && vg_core_another_in_slot(core, slice);
  if (!prepares) slice->demand.window_idle_ns += passed_ns - active_ns;
  return reported_ns;
}

/* The token buckets of its maximum and of its guarantee. */
static void fill_buckets(const struct vg_core *core, struct vg_core_slice *slice, uint64_t passed_ns,
                         uint64_t active_ns) {
  uint32_t min_milli = slice->params.min_milli, max_milli = slice->params.max_milli;
  int64_t depth_ns = vg_core_cap_depth(core, slice, active_ns);
  if (vg_core_lately_active(slice, core->last_ns)) /* a deficit outlasts a short pause, and does not grow in it */
    depth_ns = vg_core_max(depth_ns, slice->bucket.cap_ns);
  slice->bucket.cap_ns = vg_core_min(slice->bucket.cap_ns + vg_core_scale_ns(passed_ns, max_milli), depth_ns);
  depth_ns = vg_core_scale_ns(core->params.guarantee_depth_ns, min_milli);
  slice->bucket.guarantee_ns =
      vg_core_min(slice->bucket.guarantee_ns + vg_core_scale_ns(passed_ns, min_milli), depth_ns);
}

/* Adds its entitlement for the time that passed. */
static void accrue_lag(const struct vg_core *core, struct vg_core_slice *slice, uint64_t passed_ns) {
  if (slice->saturating) {
    if (!slice->step.was_active)
      slice->slot.virtual_ns += passed_ns; /* the entitlement of an idle slice is not saved */
    return;
  }
  uint64_t guarantee_depth_ns = core->params.guarantee_depth_ns;
  uint32_t min_milli = slice->params.min_milli;
  /* A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more. */
  uint32_t ppm = slice->params.latency ? slice->out.entitlement_ppm * 101 / 100 : slice->out.entitlement_ppm;
  int64_t depth_ns = vg_core_part_of(guarantee_depth_ns, slice->out.entitlement_ppm);
  depth_ns = vg_core_max(depth_ns, slice->free.lag_ns);
  if (vg_core_active(slice)) /* the slot has used what it is short of, since launched work cannot be taken back */
    depth_ns = vg_core_max(depth_ns, -core->slot_lag_ns);
  slice->free.lag_ns = vg_core_min(slice->free.lag_ns + vg_core_part_of(passed_ns, ppm), depth_ns);
  if (!vg_core_may_begin_turn(slice)) /* it is not owed what it does not take */
    slice->free.lag_ns = vg_core_min(slice->free.lag_ns, VG_CORE_SHORT_NS);
  int64_t owed_ns = slice->free.owed_ns + vg_core_part_of(passed_ns, min_milli * VG_CORE_MILLI * 101 / 100);
  slice->free.owed_ns = vg_core_min(owed_ns, vg_core_scale_ns(guarantee_depth_ns, min_milli));
}

static void accrue_slot_lag(struct vg_core *core, uint64_t passed_ns) {
  vg_core_sum_slot(core); /* slices may have been removed since */
  core->slot_lag_ns = vg_core_min(core->slot_lag_ns + vg_core_part_of(passed_ns, core->slot_ppm),
                                  vg_core_part_of(core->params.guarantee_depth_ns, core->slot_ppm));
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
  bool due = (core->slot_reports_work || done_ns) && now_ns >= slice->account.settled_ns + VG_CORE_TICK_NS;
  if (!slice->in.outstanding || due) {
    int64_t reported_ns = done_ns + vg_core_take_unexplained_ns(core, slice, done_ns);
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
  vg_core_charge(core, slice, used_ns, idle_ns);
}

/* The part of a slice's time that it shares with others in the slot: at most as long as their work was outstanding. Of
 * a short step all of it; a step beside a drain is long only if the thread ran late, and then most of it belongs to one
 * of them. */
static int64_t shared_ns(const struct vg_core *core, const struct vg_core_slice *self, int64_t used_ns,
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
  int64_t taken_ns = vg_core_clamp_ns(core->free_used_ns, (int64_t)passed_ns);
  core->free_used_ns = vg_core_clamp_ns(core->free_used_ns - taken_ns, CARRIED_MAX_NS);
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
    int64_t split_ns = shared_ns(core, slice, used_ns, passed_ns, now_ns);
    used_ns -= split_ns - split_ns * own / contexts;
    int64_t ran_ns = vg_core_max(0, (int64_t)slice->step.busy_ns - taken_ns);
    vg_core_charge(core, slice, used_ns, vg_core_max(0, used_ns - ran_ns));
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
  vg_core_charge(core, slice, vg_core_max(0, slice->slot.unpaid_ns - VG_CORE_LATE_REPORTED_NS), 0);
  int64_t more_ns = vg_core_max(0, slice->slot.over_cap_ns - VG_CORE_LATE_REPORTED_NS);
  slice->slot.over_cap_ns -= more_ns;
  slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - more_ns, -VG_CORE_DEBT_MAX_NS);
}

void vg_core_charge_all(struct vg_core *core, uint64_t now_ns) {
  uint64_t passed_ns = now_ns - core->last_ns;
  uint32_t contexts = 0;
  core->slot_occupied = false;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    uint64_t active_ns = note_reports(core, slice, passed_ns);
    fill_buckets(core, slice, passed_ns, active_ns);
    accrue_lag(core, slice, passed_ns);
    contexts += slice->step.contexts;
    core->slot_occupied |= vg_core_shares_device(slice, now_ns);
  }
  accrue_slot_lag(core, passed_ns);
  vg_core_weigh(core, now_ns);
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && !core->slices[i].saturating)
      charge_free(core, &core->slices[i], contexts, passed_ns, now_ns);
  charge_slot(core, passed_ns, now_ns);
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_in_slot(&core->slices[i])) charge_unpaid(core, &core->slices[i]);
}
