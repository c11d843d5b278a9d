/* slot.c - see slot.h. */
#include "arbiter/slot.h"

#include <stddef.h>

#include "arbiter/entitlements.h"
#include "arbiter/free_slices.h"
#include "arbiter/gates.h"
#include "arbiter/lags.h"
#include "arbiter/maximum.h"

/* Demand above which a free slice becomes saturating, and below which that one becomes free. */
#define SATURATING_PPM 970000
#define FREE_PPM 930000

struct vg_core_slice *vg_core_find_in_slot(struct vg_core *core, enum vg_core_state state) {
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_in_slot(&core->slices[i]) && core->slices[i].gate.state == state) return &core->slices[i];
  return NULL;
}

/* By a holder, or by one that drains. */
static bool slot_is_taken(struct vg_core *core) {
  return vg_core_find_in_slot(core, VG_CORE_OPEN) || vg_core_find_in_slot(core, VG_CORE_DRAINING);
}

/* What a slice has paid ahead of its reports, or below 0 still owes, which it takes along when it changes its class.
 * Beside others it may have paid for keeping the device from them, and its estimates may be too long. */
static int64_t paid_ahead_ns(const struct vg_core *core, const struct vg_core_slice *slice) {
  int64_t settled_ns = (int64_t)(slice->account.done_seen_ns - slice->report.done_ns);
  int64_t paid_ns = slice->saturating ? -slice->slot.over_cap_ns : settled_ns + slice->account.provisional_ns;
  return vg_core_others_active(core, slice) ? 0 : vg_core_clamp_ns(paid_ns, VG_CORE_LATE_REPORTED_NS);
}

/* The lag is taken along: a dropped one would be missing from this slice or from the others. */
static void leave_slot(struct vg_core *core, struct vg_core_slice *slice) {
  slice->account.done_seen_ns = (uint64_t)vg_core_max(0, (int64_t)slice->report.done_ns + paid_ahead_ns(core, slice));
  slice->free.lag_ns = vg_core_lag_of(core, slice, vg_core_slot_mean_ns(core));
  core->slot_lag_ns = vg_core_clamp_ns(core->slot_lag_ns - slice->free.lag_ns, VG_CORE_DEBT_MAX_NS);
  core->slot_ppm -= slice->out.entitlement_ppm;
  slice->saturating = false;
  slice->account.provisional_ns = slice->account.outstanding_ns = slice->account.alone_ns = 0;
  slice->account.beside_slot = false;
  slice->report.recent_run_ns = slice->report.recent_reported_ns = 0;
  slice->out.lease_end_ns = 0;
  if (slice->gate.state == VG_CORE_DRAINING) vg_core_let_overlap(slice, core->last_ns);
}

/* It keeps its lag, as virtual time. */
static void join_slot(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  bool taken = slot_is_taken(core);
  slice->slot.unpaid_ns = 0;
  slice->slot.over_cap_ns = -paid_ahead_ns(core, slice);
  int64_t begin_ns = (int64_t)core->floor_ns - vg_core_time_behind_ns(slice);
  if (core->slot_ppm) begin_ns += vg_core_slot_mean_ns(core) + vg_core_slot_behind(core);
  slice->slot.virtual_ns = begin_ns > 0 ? (uint64_t)begin_ns : 0;
  core->slot_lag_ns = vg_core_clamp_ns(core->slot_lag_ns + slice->free.lag_ns, VG_CORE_DEBT_MAX_NS);
  core->slot_ppm += slice->out.entitlement_ppm;
  slice->free.lag_ns = 0;
  slice->saturating = true;
  slice->free.has_precedence = slice->free.throttled = slice->free.holds = false;
  slice->report.recent_run_ns = slice->report.recent_reported_ns = 0;
  if (slice->gate.state != VG_CORE_OPEN || !taken) return;
  vg_core_close_gate(slice, now_ns);
  if (vg_core_drains(slice)) vg_core_let_overlap(slice, now_ns);
}

/* Is it to be saturating? */
static bool takes_turns(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  if (vg_core_follows(slice)) return slice->in.gang_turns;
  if (slice->params.latency || slice->params.gang == VG_GANG_OPEN) return false;
  if (vg_core_leads_beside_others(core, slice)) return true;
  if (!vg_core_lately_active(slice, now_ns)) return false;
  return slice->saturating ? slice->demand.ppm >= FREE_PPM
                           : slice->demand.ppm >= SATURATING_PPM && slice->demand.work_ns;
}

void vg_core_review_slot_members(struct vg_core *core, uint64_t now_ns) {
  bool window_ends = now_ns >= core->window_ns + VG_CORE_WINDOW_NS;
  if (window_ends) core->window_ns = now_ns;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || (!window_ends && !slice->params.gang)) continue;
    if (window_ends) vg_core_measure_demand(slice);
    bool turns = takes_turns(core, slice, now_ns);
    if (slice->saturating && !turns) leave_slot(core, slice);
    if (!slice->saturating && turns) join_slot(core, slice, now_ns);
  }
}

/* Work of a slice has recently outlasted its gate by more than a lease. Beside it, leases of other lengths only change
 * when its next one comes, by which its seconds vary. */
static bool drains_are_long(const struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_in_slot(&core->slices[i]) && core->slices[i].gate.late_ns > core->params.quantum_ns) return true;
  return false;
}

/* The order of slices in the slot. Work that is outstanding is charged as it runs: the slice that was served last is
 * next again only if it is further behind than by that and the shortest lease. */
static uint64_t order_of(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t last_served) {
  if (slice->gate.served != last_served) return slice->slot.virtual_ns;
  int64_t ahead_ns = (int64_t)(core->params.bound_ns + core->params.quantum_min_ns);
  return slice->slot.virtual_ns + (uint64_t)vg_core_due_time(ahead_ns, slice->out.entitlement_ppm);
}

/* Is a to be served before b? A gang's follower while its leader runs, then the smallest virtual time, then the slice
 * that was served longest ago. */
static bool is_before(const struct vg_core *core, const struct vg_core_slice *a, const struct vg_core_slice *b,
                      uint64_t last_served) {
  if (vg_core_follows(a) != vg_core_follows(b)) return vg_core_follows(a);
  if (vg_core_is_caught(core, a) != vg_core_is_caught(core, b)) return vg_core_is_caught(core, a);
  uint64_t order_a = order_of(core, a, last_served), order_b = order_of(core, b, last_served);
  return order_a != order_b ? order_a < order_b : a->gate.served < b->gate.served;
}

/* The candidate that is next in the slot. */
static struct vg_core_slice *pick(struct vg_core *core, const struct vg_core_slice *but, uint64_t now_ns) {
  struct vg_core_slice *best = NULL;
  uint64_t last_served = 0; /* of none */
  bool long_drains = drains_are_long(core);
  for (int i = 0; i < core->slice_count && !long_drains; i++)
    if (vg_core_in_slot(&core->slices[i]) && core->slices[i].gate.served > last_served)
      last_served = core->slices[i].gate.served;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (slice == but || (slice->gate.state != VG_CORE_OPEN && !vg_core_may_open(slice, now_ns))) continue;
    if (vg_core_is_candidate(core, slice) && (!best || is_before(core, slice, best, last_served))) best = slice;
  }
  return best;
}

/* A gang's devices stop at different places of its work and wait for each other when it continues: the rarer the
 * better.
 */
static uint64_t quantum_of(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_leads_beside_others(core, slice) ? 2 * core->params.quantum_ns : core->params.quantum_ns;
}

/* An open-ended lease, or if others wait, a quantum, less when the maximum ends it. */
static void set_lease(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns, bool contended) {
  slice->out.lease_end_ns = contended ? now_ns + quantum_of(core, slice) : 0;
  if (!contended || vg_core_is_uncapped(slice) || slice->bucket.cap_ns >= (int64_t)core->params.quantum_ns) return;
  int64_t least_ns = (int64_t)core->params.quantum_min_ns;
  slice->out.lease_end_ns = now_ns + (uint64_t)(slice->bucket.cap_ns > least_ns ? slice->bucket.cap_ns : least_ns);
}

void vg_core_review_vacancy(struct vg_core *core) {
  int64_t margin_ns = core->slot_reserved ? VG_CORE_BACK_NS : VG_CORE_AHEAD_NS;
  core->slot_reserved = false;
  if (!core->slot_ppm) return;
  core->slot_reserved =
      vg_core_first_latency(core) || vg_core_most_behind(core, NULL) > vg_core_slot_behind(core) + margin_ns;
}

/* Ahead by more than one lease of its own causes: it was let in while the other one paused. */
static bool is_a_lease_ahead(const struct vg_core *core, const struct vg_core_slice *slice,
                             const struct vg_core_slice *of) {
  return slice->slot.virtual_ns >
         of->slot.virtual_ns + quantum_of(core, slice) * VG_CORE_PPM / slice->out.entitlement_ppm;
}

/* The lease continues until the holder is no more behind the next slice, at most by a quantum. */
static void extend_lease(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns) {
  set_lease(core, holder, now_ns, true);
  const struct vg_core_slice *following = pick(core, holder, now_ns);
  if (!following || holder->params.gang || drains_are_long(core)) return;
  int64_t behind_ns = (int64_t)(following->slot.virtual_ns - holder->slot.virtual_ns);
  behind_ns = vg_core_clamp_ns(behind_ns, VG_CORE_DEBT_MAX_NS * VG_CORE_MILLI);
  int64_t left_ns = behind_ns * holder->out.entitlement_ppm / VG_CORE_PPM - (int64_t)core->params.bound_ns;
  uint64_t end_ns = now_ns + (uint64_t)vg_core_max(left_ns, (int64_t)core->params.quantum_min_ns);
  holder->out.lease_end_ns = vg_core_least(holder->out.lease_end_ns, end_ns);
}

void vg_core_review_holder(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns) {
  bool rethought =
      holder->in.quiet && holder->in.wants &&
      vg_core_may_open(holder, now_ns); /* it gave up the device and wants it again: a word is given up once */
  if (rethought || core->slot_reserved || !vg_core_may_run(core, holder)) {
    vg_core_close_gate(holder, now_ns);
    return;
  }
  if (holder->in.gave_up_while_waiting && vg_core_may_open(holder, now_ns))
    vg_core_renew_word(core, holder, now_ns); /* its other processes run: let this one in, too */
  struct vg_core_slice *next = vg_core_another_waits(core, holder) ? pick(core, NULL, now_ns) : NULL;
  if (!next) { /* no slice waits that its maximum would let run */
    set_lease(core, holder, now_ns, false);
    return;
  }
  if (!vg_core_holder_is_active(core, holder)) {
    vg_core_close_gate(holder, now_ns);
    return;
  }
  if (!holder->out.lease_end_ns) { /* the first to wait: the open end becomes one lease, counted from its grant */
    set_lease(core, holder, now_ns, true);
    if (holder->gate.grant_ns + core->params.quantum_ns <= now_ns) holder->out.lease_end_ns = now_ns;
  }
  if (!next->bucket.limited && is_a_lease_ahead(core, holder, next))
    holder->out.lease_end_ns =
        vg_core_least(holder->out.lease_end_ns, holder->gate.grant_ns + core->params.quantum_min_ns);
  bool preempted = next != holder && vg_core_follows(next);
  if (now_ns < holder->out.lease_end_ns && !preempted) return;
  if (next == holder)
    extend_lease(core, holder, now_ns);
  else
    vg_core_close_gate(holder, now_ns);
}

/* A slice whose work outlasts its gate, and that has used more than its entitlement, is not let in as soon as slices
 * pause that have used less: the more it has used, the longer these may pause. */
static uint64_t put_off_until(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  int64_t mean_ns = vg_core_slot_mean_ns(core), beyond_ns = -vg_core_lag_of(core, slice, mean_ns);
  if (beyond_ns > (int64_t)slice->gate.late_ns) beyond_ns = (int64_t)slice->gate.late_ns;
  beyond_ns -= (int64_t)core->params.bound_ns;
  if (beyond_ns <= 0) return 0;
  uint64_t until_ns = 0, patience_ns = vg_core_least((uint64_t)beyond_ns / 4, VG_CORE_IDLE_NS);
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (vg_core_active(other) || !vg_core_lately_active(other, now_ns)) continue;
    if (vg_core_lag_of(core, other, mean_ns) <= VG_CORE_SHORT_NS) continue;
    if (other->step.last_active_ns + patience_ns > until_ns) until_ns = other->step.last_active_ns + patience_ns;
  }
  return until_ns;
}

void vg_core_grant(struct vg_core *core, uint64_t now_ns) {
  core->slot_hold_until_ns = 0;
  if (core->slot_reserved || slot_is_taken(core)) return;
  struct vg_core_slice *next = pick(core, NULL, now_ns);
  if (!next) return;
  core->slot_hold_until_ns = put_off_until(core, next, now_ns);
  if (now_ns < core->slot_hold_until_ns) return;
  vg_core_open_gate(core, next, now_ns);
  set_lease(core, next, now_ns, vg_core_another_waits(core, next));
}
