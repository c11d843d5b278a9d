/* policy.c - see policy.h. Mirrors models/arbiter/policy.py, which is to be changed with it. */
#include "arbiter/policy.h"

#include <stddef.h>

#include "arbiter/shares.h"

#define FORECAST_MAX_NS (10000ull * VG_CORE_MS) /* longest forecast of a drain that is believed */
/* The slot does not wait for a drain that is forecast to take so many times as long as it would wait. */
#define ENDLESS_PATIENCES 8
/* Demand above which a free slice becomes saturating, and below which that one becomes free. */
#define SATURATING_PPM 970000
#define FREE_PPM 930000
/* A slice that waits for another one, further behind, continues when it is no further ahead of it than this. */
#define BACK_NS (2 * VG_CORE_MS)

/* ---- which slices want to run ---- */

static bool another_waits(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && vg_core_in_slot(&core->slices[i]) && vg_core_waits(&core->slices[i])) return true;
  return false;
}

static bool active_holder(const struct vg_core *core, const struct vg_core_slice *holder) {
  if (holder->in.quiet) return false;
  return holder->in.outstanding || holder->in.wants || core->last_ns < holder->gate.grant_ns + VG_CORE_WAKE_GRACE_NS;
}

static bool candidate(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (!vg_core_in_slot(slice) || !vg_core_may_run(core, slice)) return false;
  return slice->gate.state == VG_CORE_OPEN ? active_holder(core, slice) : vg_core_waits(slice);
}

/* ---- free or saturating ---- */

/* What a slice has paid ahead of its reports, or below 0 still owes, which it takes along when it changes its class.
 * Beside others it may have paid for keeping the device from them, and its estimates may be too long. */
static int64_t paid_ahead(const struct vg_core *core, const struct vg_core_slice *slice) {
  int64_t settled_ns = (int64_t)(slice->account.done_seen_ns - slice->report.done_ns);
  int64_t paid_ns = slice->saturating ? -slice->slot.over_cap_ns : settled_ns + slice->account.provisional_ns;
  return vg_core_others_active(core, slice) ? 0 : vg_core_within(paid_ns, VG_CORE_LATE_REPORTED_NS);
}

/* The lag is taken along: a dropped one would be missing from this slice or from the others. */
static void leave_slot(struct vg_core *core, struct vg_core_slice *slice) {
  slice->account.done_seen_ns = (uint64_t)vg_core_max(0, (int64_t)slice->report.done_ns + paid_ahead(core, slice));
  slice->free.lag_ns = vg_core_lag(core, slice, vg_core_slot_mean(core));
  core->slot_lag_ns = vg_core_within(core->slot_lag_ns - slice->free.lag_ns, VG_CORE_DEBT_MAX_NS);
  core->slot_ppm -= slice->out.entitlement_ppm;
  slice->saturating = false;
  slice->account.provisional_ns = slice->account.outstanding_ns = slice->account.alone_ns = 0;
  slice->account.beside_slot = false;
  slice->report.recent_run_ns = slice->report.recent_reported_ns = 0;
  slice->report.over_reported_ns = 0;
  slice->out.lease_end_ns = 0;
  if (slice->gate.state == VG_CORE_DRAINING) vg_core_overlap(slice, core->last_ns);
}

static void join_slot(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  bool taken = false;
  slice->slot.unpaid_ns = 0;
  slice->slot.over_cap_ns = -paid_ahead(core, slice);
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    taken |= vg_core_in_slot(other) && (other->gate.state == VG_CORE_OPEN || other->gate.state == VG_CORE_DRAINING);
  }
  int64_t begin_ns = (int64_t)core->floor_ns - vg_core_behind(slice);
  if (core->slot_ppm) begin_ns += vg_core_slot_mean(core) + vg_core_slot_behind(core);
  slice->slot.virtual_ns = begin_ns > 0 ? (uint64_t)begin_ns : 0;
  core->slot_lag_ns = vg_core_within(core->slot_lag_ns + slice->free.lag_ns, VG_CORE_DEBT_MAX_NS);
  core->slot_ppm += slice->out.entitlement_ppm;
  slice->free.lag_ns = 0;
  slice->saturating = true;
  slice->free.has_precedence = slice->free.throttled = slice->free.holds = false;
  slice->report.recent_run_ns = slice->report.recent_reported_ns = 0;
  slice->report.over_reported_ns = 0;
  if (slice->gate.state != VG_CORE_OPEN || !taken) return;
  vg_core_close_gate(slice, now_ns);
  if (slice->gate.state == VG_CORE_DRAINING) vg_core_overlap(slice, now_ns);
}

/* A gang's leader beside another gang's: gangs take turns whatever their demand, since side by side each could wait on
 * one device for what the other one has. */
static bool leads_beside_others(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count && vg_core_leads(self); i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && other->present && other->in.attached && vg_core_leads(other)) return true;
  }
  return false;
}

static bool takes_turns(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  if (vg_core_follows(slice)) return slice->in.gang_turns;
  if (slice->params.latency || slice->params.gang == VG_GANG_OPEN) return false;
  if (leads_beside_others(core, slice)) return true;
  if (!vg_core_lately_active(slice, now_ns)) return false;
  return slice->saturating ? slice->demand.ppm >= FREE_PPM
                           : slice->demand.ppm >= SATURATING_PPM && slice->demand.work_ns;
}

void vg_core_judge_demands(struct vg_core *core, uint64_t now_ns) {
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

/* ---- drains ---- */

static uint64_t patience_end(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->gate.close_ns + core->params.bound_ns + core->params.overrun_ns;
}

/* How long a long kernel is waited for: side by side, the hardware switches context every millisecond. The wait is
 * missing from the others' next second in proportion to their entitlements, so the less that is, the longer it may be.
 * No slice is let in just before its end: it would have the hardware's first time slice for half its price. */
static uint64_t patience_for_long(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t others_ppm = VG_CORE_PPM - slice->out.entitlement_ppm, least_ppm = VG_CORE_PPM / 3;
  uint64_t patience_ns = core->params.bound_ns + core->params.overrun_ns;
  return patience_ns * VG_CORE_PPM / (others_ppm > least_ppm ? others_ppm : least_ppm);
}

uint64_t vg_core_overlap_from(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (leads_beside_others(core, slice))
    return slice->in.gang_busy ? slice->gate.close_ns + VG_CORE_RESCUE_NS : patience_end(core, slice);
  uint64_t expected_ns = slice->in.drain_expected_ns;
  if (expected_ns < slice->gate.close_ns) return patience_end(core, slice);
  if (expected_ns <= patience_end(core, slice)) return expected_ns - core->params.lookahead_ns;
  uint64_t patience_ns = patience_for_long(core, slice);
  if (expected_ns > slice->gate.close_ns + ENDLESS_PATIENCES * patience_ns)
    return slice->gate.close_ns; /* the wait would only put off the overlap */
  return vg_core_least(expected_ns, slice->gate.close_ns + patience_ns);
}

/* Work with a long forecast is not stuck as long as it may still complete, beside one or two neighbours: letting its
 * slice launch more meanwhile would reward it. */
static uint64_t rescue_after(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (slice->in.drain_expected_ns < now_ns) return VG_CORE_RESCUE_NS;
  uint64_t forecast_ns = vg_core_least(slice->in.drain_expected_ns - now_ns, FORECAST_MAX_NS);
  return 3 * forecast_ns > VG_CORE_RESCUE_NS ? 3 * forecast_ns : VG_CORE_RESCUE_NS;
}

/* Work that waited in its stream for something else runs, behind a gate that has been closed meanwhile. */
static void resume(struct vg_core_slice *slice, uint64_t now_ns) {
  vg_core_overlap(slice, now_ns);
  slice->gate.close_ns = now_ns;
}

void vg_core_note_drains(struct vg_core *core, uint64_t now_ns) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    bool runs = slice->in.attached && slice->in.outstanding && !slice->in.quiet;
    if (slice->gate.state == VG_CORE_SHUT && runs) resume(slice, now_ns);
    if (vg_core_drains(slice) && now_ns - slice->gate.close_ns > slice->gate.late_ns)
      slice->gate.late_ns = now_ns - slice->gate.close_ns;
    if (vg_core_drains(slice) && (slice->in.quiet || !slice->in.attached)) {
      if (vg_core_is_open(slice)) vg_core_set_word(slice, VG_GATE_CLOSED);
      slice->gate.state = VG_CORE_SHUT;
    }
    if (slice->gate.state == VG_CORE_DRAINING && now_ns >= vg_core_overlap_from(core, slice)) {
      vg_core_overlap(slice, now_ns);
      slice->gate.rescue_ns = now_ns + rescue_after(slice, now_ns);
    }
    bool late = slice->saturating && slice->gate.state == VG_CORE_OVERLAP && now_ns >= patience_end(core, slice);
    if (late && !slice->gate.overran) {
      slice->gate.overran = true;
      slice->stats.overruns++;
    }
  }
}

/* ---- which slices are short, and which wait for them ---- */

/* It is of the latency class, and within its guarantee. */
static bool may_precede(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->params.latency && !slice->free.overdrawn && vg_core_below_maximum(core, slice);
}

static bool urgent(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->present && vg_core_active(slice) && may_precede(core, slice) && vg_core_may_begin_turn(slice);
}

/* The latency slice to be served before all others: of those that may precede, the one with the earliest deadline. */
static const struct vg_core_slice *first_latency(const struct vg_core *core) {
  const struct vg_core_slice *first = NULL;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!urgent(core, slice)) continue;
    bool sooner = !first || slice->free.deadline_ns < first->free.deadline_ns ||
                  (slice->free.deadline_ns == first->free.deadline_ns && slice->id < first->id);
    if (sooner) first = slice;
  }
  return first;
}

static bool is_short(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (!slice->present || slice->saturating || !vg_core_active(slice)) return false;
  return slice->free.lag_ns > VG_CORE_SHORT_NS && vg_core_may_run(core, slice);
}

static bool slot_is_short(const struct vg_core *core) {
  if (core->slot_lag_ns <= VG_CORE_SHORT_NS) return false;
  for (int i = 0; i < core->slice_count; i++)
    if (candidate(core, &core->slices[i])) return true;
  return false;
}

/* How far behind the short slice is that is furthest behind, for a free slice or (NULL) for the slot; far ahead when no
 * other slice is short. */
static int64_t most_behind(const struct vg_core *core, const struct vg_core_slice *but) {
  int64_t most_ns = -VG_CORE_FAR_NS;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (slice != but && is_short(core, slice) && vg_core_behind(slice) > most_ns) most_ns = vg_core_behind(slice);
  }
  if (but && slot_is_short(core) && vg_core_slot_behind(core) > most_ns) most_ns = vg_core_slot_behind(core);
  return most_ns;
}

/* An upper bound of most_behind() for all slices: fewer questions, asked once. */
static int64_t furthest_behind(const struct vg_core *core) {
  int64_t most_ns = core->slot_lag_ns > VG_CORE_SHORT_NS ? vg_core_slot_behind(core) : -VG_CORE_FAR_NS;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating || slice->free.lag_ns <= VG_CORE_SHORT_NS) continue;
    if (vg_core_behind(slice) > most_ns) most_ns = vg_core_behind(slice);
  }
  return most_ns;
}

static bool had_too_much(const struct vg_core *core, const struct vg_core_slice *slice, int64_t furthest_ns) {
  int64_t limit_ns = vg_core_behind(slice) + (slice->free.throttled ? BACK_NS : VG_CORE_AHEAD_NS);
  return furthest_ns > limit_ns && most_behind(core, slice) > limit_ns;
}

/* A latency slice that has used up its debt has no precedence until some of it is paid. A maximum limits a slice from
 * when its bucket is empty until it is nearly full. */
void vg_core_note_debts(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    int64_t full_ns = vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli);
    slice->bucket.limited =
        !vg_core_uncapped(slice) && slice->bucket.cap_ns < (slice->bucket.limited ? full_ns * 3 / 4 : 1);
    bool overdrawn = slice->free.owed_ns <= (slice->free.overdrawn ? BACK_NS : 0) - VG_CORE_LATENCY_DEBT_NS;
    if (slice->free.overdrawn && !overdrawn) vg_core_set_deadline(slice, core->last_ns);
    slice->free.overdrawn = overdrawn;
  }
}

/* Time used while no slice was behind cost no other slice anything: it is no debt to slices that arrive later. A slice
 * with precedence is not behind because of others. */
void vg_core_forgive(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    int64_t behind_ns = slice->saturating ? core->slot_lag_ns : slice->free.lag_ns;
    bool waits = behind_ns > VG_CORE_SHORT_NS && vg_core_lately_active(slice, core->last_ns);
    if (waits && !may_precede(core, slice)) return;
  }
  int64_t least_ns = -(VG_CORE_AHEAD_NS * core->slot_ppm / VG_CORE_PPM);
  if (core->slot_lag_ns < least_ns) core->slot_lag_ns = least_ns;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    least_ns = -(VG_CORE_AHEAD_NS * slice->out.entitlement_ppm / VG_CORE_PPM);
    if (slice->free.lag_ns < least_ns) slice->free.lag_ns = least_ns;
    least_ns = -vg_core_scaled(VG_CORE_AHEAD_NS, slice->params.min_milli);
    if (slice->free.owed_ns < least_ns) slice->free.owed_ns = least_ns;
  }
}

void vg_core_review_slot(struct vg_core *core) {
  int64_t margin_ns = core->slot_reserved ? BACK_NS : VG_CORE_AHEAD_NS;
  core->slot_reserved = false;
  if (!core->slot_ppm) return;
  core->slot_reserved = first_latency(core) || most_behind(core, NULL) > vg_core_slot_behind(core) + margin_ns;
}

void vg_core_review_free(struct vg_core *core, uint64_t now_ns) {
  const struct vg_core_slice *first = first_latency(core);
  int64_t furthest_ns = furthest_behind(core);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    slice->free.has_precedence = slice == first;
    bool yields = !may_precede(core, slice) && had_too_much(core, slice, furthest_ns);
    slice->free.throttled = !vg_core_may_run(core, slice) || (slice != first && (first || yields));
    if (slice->free.throttled && slice->gate.state == VG_CORE_OPEN)
      vg_core_close_gate(slice, now_ns);
    else if (slice->free.throttled || !vg_core_may_open(slice, now_ns))
      continue;
    else if (slice->gate.state != VG_CORE_OPEN)
      vg_core_open_gate(core, slice, now_ns);
    else if (slice->in.gave_up_while_waiting || (slice->in.quiet && slice->in.wants))
      vg_core_renew_word(core, slice, now_ns);
  }
}

void vg_core_note_turns(struct vg_core *core) {
  bool shut = core->slot_reserved;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating || !slice->free.throttled) continue;
    shut |= vg_core_active(slice) && vg_core_may_run(core, slice);
  }
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    bool held = slice->free.holds, runs = slice->gate.state == VG_CORE_OPEN && vg_core_active(slice);
    slice->free.holds = shut && runs && (slice->free.has_precedence || is_short(core, slice));
    if (slice->free.holds && !held) vg_core_begin_turn(core, slice);
  }
}

/* ---- the slot ---- */

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
static bool before(const struct vg_core *core, const struct vg_core_slice *a, const struct vg_core_slice *b,
                   uint64_t last_served) {
  if (vg_core_follows(a) != vg_core_follows(b)) return vg_core_follows(a);
  if (vg_core_is_caught(core, a) != vg_core_is_caught(core, b)) return vg_core_is_caught(core, a);
  uint64_t order_a = order_of(core, a, last_served), order_b = order_of(core, b, last_served);
  return order_a != order_b ? order_a < order_b : a->gate.served < b->gate.served;
}

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
    if (candidate(core, slice) && (!best || before(core, slice, best, last_served))) best = slice;
  }
  return best;
}

/* A gang's devices stop at different places of its work and wait for each other when it continues: the rarer the
 * better.
 */
static uint64_t quantum_of(const struct vg_core *core, const struct vg_core_slice *slice) {
  return leads_beside_others(core, slice) ? 2 * core->params.quantum_ns : core->params.quantum_ns;
}

static void set_lease(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns, bool contended) {
  slice->out.lease_end_ns = contended ? now_ns + quantum_of(core, slice) : 0;
  if (!contended || vg_core_uncapped(slice) || slice->bucket.cap_ns >= (int64_t)core->params.quantum_ns) return;
  int64_t least_ns = (int64_t)core->params.quantum_min_ns;
  slice->out.lease_end_ns = now_ns + (uint64_t)(slice->bucket.cap_ns > least_ns ? slice->bucket.cap_ns : least_ns);
}

/* The lease continues until the holder is no more behind the next slice, at most by a quantum. */
static void extend_lease(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns) {
  set_lease(core, holder, now_ns, true);
  const struct vg_core_slice *following = pick(core, holder, now_ns);
  if (!following || holder->params.gang || drains_are_long(core)) return;
  int64_t behind_ns = (int64_t)(following->slot.virtual_ns - holder->slot.virtual_ns);
  behind_ns = vg_core_within(behind_ns, VG_CORE_DEBT_MAX_NS * VG_CORE_MILLI);
  int64_t left_ns = behind_ns * holder->out.entitlement_ppm / VG_CORE_PPM - (int64_t)core->params.bound_ns;
  uint64_t end_ns = now_ns + (uint64_t)vg_core_max(left_ns, (int64_t)core->params.quantum_min_ns);
  holder->out.lease_end_ns = vg_core_least(holder->out.lease_end_ns, end_ns);
}

/* Ahead by more than one lease of its own causes: it was admitted while the other one paused. */
static bool is_a_lease_ahead(const struct vg_core *core, const struct vg_core_slice *slice,
                             const struct vg_core_slice *of) {
  return slice->slot.virtual_ns >
         of->slot.virtual_ns + quantum_of(core, slice) * VG_CORE_PPM / slice->out.entitlement_ppm;
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
    vg_core_renew_word(core, holder, now_ns); /* its other processes run: admit this one, too */
  struct vg_core_slice *next = another_waits(core, holder) ? pick(core, NULL, now_ns) : NULL;
  if (!next) { /* no slice waits that its maximum would let run */
    set_lease(core, holder, now_ns, false);
    return;
  }
  if (!active_holder(core, holder)) {
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

struct vg_core_slice *vg_core_find_in_slot(struct vg_core *core, enum vg_core_state state) {
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_in_slot(&core->slices[i]) && core->slices[i].gate.state == state) return &core->slices[i];
  return NULL;
}

/* A slice whose work outlasts its gate, and that has used more than its entitlement, is not admitted as soon as slices
 * pause that have used less: the more it has used, the longer these may pause. */
static uint64_t put_off_until(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  int64_t mean_ns = vg_core_slot_mean(core), beyond_ns = -vg_core_lag(core, slice, mean_ns);
  if (beyond_ns > (int64_t)slice->gate.late_ns) beyond_ns = (int64_t)slice->gate.late_ns;
  beyond_ns -= (int64_t)core->params.bound_ns;
  if (beyond_ns <= 0) return 0;
  uint64_t until_ns = 0, patience_ns = vg_core_least((uint64_t)beyond_ns / 4, VG_CORE_IDLE_NS);
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (vg_core_active(other) || !vg_core_lately_active(other, now_ns)) continue;
    if (vg_core_lag(core, other, mean_ns) <= VG_CORE_SHORT_NS) continue;
    if (other->step.last_active_ns + patience_ns > until_ns) until_ns = other->step.last_active_ns + patience_ns;
  }
  return until_ns;
}

void vg_core_grant(struct vg_core *core, uint64_t now_ns) {
  core->slot_hold_until_ns = 0;
  if (core->slot_reserved || vg_core_find_in_slot(core, VG_CORE_OPEN) || vg_core_find_in_slot(core, VG_CORE_DRAINING))
    return;
  struct vg_core_slice *next = pick(core, NULL, now_ns);
  if (!next) return;
  core->slot_hold_until_ns = put_off_until(core, next, now_ns);
  if (now_ns < core->slot_hold_until_ns) return;
  vg_core_open_gate(core, next, now_ns);
  set_lease(core, next, now_ns, another_waits(core, next));
}

/* Work may wait for something that a thread at the closed gate has yet to launch: it would never end, and be charged
 * until no bucket is left. So a gate behind which work has not drained for long is opened for a moment now and then,
 * whatever else runs. Long kernels gain nothing by it: the bound on outstanding work holds their next launch back. */
void vg_core_rescue(struct vg_core *core, uint64_t now_ns) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->gate.state != VG_CORE_OVERLAP || now_ns < slice->gate.rescue_ns) continue;
    bool open = vg_core_is_open(slice);
    uint64_t patience_ns = rescue_after(slice, now_ns);
    if (!vg_core_led(slice) && (open || (vg_core_waits(slice) && patience_ns == VG_CORE_RESCUE_NS)))
      vg_core_set_word(slice, open ? VG_GATE_CLOSED : VG_GATE_COUNT);
    slice->gate.rescue_ns = now_ns + (vg_core_is_open(slice) ? core->params.quantum_min_ns : patience_ns);
  }
}
