/*
 * shares.h - usage, demands and entitlements of slices: what shares.c (charging), entitlements.c and outputs.c add to a
 * step, and the questions about slices that all files of the core ask. Pure.
 */
#ifndef VG_ARBITER_SHARE_H
#define VG_ARBITER_SHARE_H
#include "arbiter/core.h"

#define VG_CORE_MILLI 1000
#define VG_CORE_PPM 1000000
#define VG_CORE_MS 1000000ll
/* Limit of lags and debts: a single kernel of a minute must not keep its slice from running for an hour. */
#define VG_CORE_DEBT_MAX_NS (1000 * VG_CORE_MS)
/* Period of steps while several slices run. */
#define VG_CORE_TICK_NS (2ull * VG_CORE_MS)
/* Window over which demand is measured (averaged over about four). */
#define VG_CORE_WINDOW_NS (10ull * VG_CORE_MS)
/* A holder that has just been let in needs this long to wake up and launch before it can be called idle. */
#define VG_CORE_WAKE_GRACE_NS (VG_CORE_MS / 2)
/* Lag from which a slice is short; how much further behind than another one it must be, each by its own entitlement,
 * for the other one to wait for it. */
#define VG_CORE_SHORT_NS VG_CORE_MS
/* Completed work may be reported this long after the time in which it ran. */
#define VG_CORE_LATE_REPORTED_NS (20 * VG_CORE_MS)
#define VG_CORE_AHEAD_NS (4 * VG_CORE_MS)
#define VG_CORE_FAR_NS (1ll << 62)
/* How long work may outlast its gate before that is opened for a moment. */
#define VG_CORE_RESCUE_NS (50ull * VG_CORE_MS)
/* A slice inactive for this long is idle: its demand before that no longer counts. */
#define VG_CORE_IDLE_NS (50ull * VG_CORE_MS)
/* After this long without a step, tenants have followed their timetables (coast): the arbiter stood still. */
#define VG_CORE_STALLED_NS (100ull * VG_CORE_MS)
/* Token bucket of turns without work: cost of one, depth, time in which it fills by one (reported work fills it, too).
 */
#define VG_CORE_TURN_CREDIT_NS (VG_CORE_MS / 20)
#define VG_CORE_TURN_CREDITS 20
#define VG_CORE_TURN_REFILL_NS (100ull * VG_CORE_MS)
/* Token bucket of open gate words: depth, time in which it fills by one (reported work fills it faster). */
#define VG_CORE_RENEWALS 10
#define VG_CORE_RENEWAL_NS (1ull * VG_CORE_MS)

static inline bool vg_core_stood_still(const struct vg_core *core, uint64_t now_ns) {
  return now_ns > core->last_ns + VG_CORE_STALLED_NS;
}

/* Leaves a gap out: its time is charged to no slice, and neither is its work. For all that lasts through it, it was not
 * there. A gap is measured by the arbiter's own clock: no page can make one. */
void vg_core_skip_gap(struct vg_core *core, uint64_t now_ns);

static inline bool vg_core_uncapped(const struct vg_core_slice *slice) {
  return slice->params.max_milli >= VG_CORE_MILLI;
}

/* The entitlement of an idle slice. */
static inline uint32_t vg_core_least_ppm(const struct vg_slice_params *params) {
  return params->min_milli ? params->min_milli * VG_CORE_MILLI : VG_CORE_MILLI;
}

/* A paused slice wants nothing, even if threads wait at its gate. */
static inline bool vg_core_wants(const struct vg_core_slice *slice) {
  return slice->in.wants && !slice->params.paused;
}

static inline bool vg_core_active(const struct vg_core_slice *slice) {
  return slice->in.attached && (slice->in.outstanding || vg_core_wants(slice));
}

static inline int64_t vg_core_scaled(uint64_t ns, uint32_t milli) {
  return (int64_t)(ns * milli / VG_CORE_MILLI);
}

static inline uint64_t vg_core_least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline int64_t vg_core_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t vg_core_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static inline uint32_t vg_core_weight(const struct vg_core_slice *slice) {
  uint32_t weight = slice->params.weight ? slice->params.weight : slice->params.min_milli;
  return weight ? weight : 1;
}

static inline bool vg_core_is_open(const struct vg_core_slice *slice) {
  return (slice->out.word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

static inline bool vg_core_drains(const struct vg_core_slice *slice) {
  return slice->gate.state == VG_CORE_DRAINING || slice->gate.state == VG_CORE_OVERLAP;
}

static inline bool vg_core_in_slot(const struct vg_core_slice *slice) {
  return slice->present && slice->saturating;
}

/* New open words are rate-limited, whatever the page reports: the time from which on the slice may be given one. */
static inline uint64_t vg_core_may_open_from(const struct vg_core_slice *slice) {
  uint64_t burst_ns = (VG_CORE_RENEWALS - 1) * VG_CORE_RENEWAL_NS;
  return slice->gate.renewed_ns > burst_ns ? slice->gate.renewed_ns - burst_ns : 0;
}

static inline bool vg_core_waits(const struct vg_core_slice *slice) {
  if (!vg_core_wants(slice) || slice->gate.state == VG_CORE_OPEN) return false;
  return slice->gate.state == VG_CORE_SHUT || slice->in.noticed;
}

/* The time that an entitlement takes for a lag. */
static inline int64_t vg_core_due_time(int64_t lag_ns, uint32_t entitlement_ppm) {
  return lag_ns * VG_CORE_PPM / (int64_t)entitlement_ppm;
}

/* Part of a gang on a device whose arbiter follows that of another device. */
static inline bool vg_core_follows(const struct vg_core_slice *slice) {
  return slice->params.gang == VG_GANG_FOLLOWER;
}

static inline bool vg_core_leads(const struct vg_core_slice *slice) {
  return slice->params.gang == VG_GANG_LEADER;
}

/* Part of a gang whose devices run together. */
static inline bool vg_core_led(const struct vg_core_slice *slice) {
  return vg_core_leads(slice) || vg_core_follows(slice);
}

static inline int64_t vg_core_behind(const struct vg_core_slice *slice) {
  return vg_core_due_time(slice->free.lag_ns, slice->out.entitlement_ppm);
}

static inline int64_t vg_core_slot_behind(const struct vg_core *core) {
  return vg_core_due_time(core->slot_lag_ns, core->slot_ppm ? core->slot_ppm : VG_CORE_MILLI);
}

static inline int64_t vg_core_within(int64_t ns, int64_t most_ns) {
  return ns > most_ns ? most_ns : ns < -most_ns ? -most_ns : ns;
}

/* Mean of the virtual times in the slot beyond the floor, weighted by entitlements. */
int64_t vg_core_slot_mean(const struct vg_core *core);
/* Entitlement minus usage; for a saturating slice its part of the slot's lag, and how far it is behind the others
 * there. */
int64_t vg_core_lag(const struct vg_core *core, const struct vg_core_slice *slice, int64_t slot_mean_ns);
/* May others wait for it? Turns without work are few, whatever its page reports. */
static inline bool vg_core_may_begin_turn(const struct vg_core_slice *slice) {
  return slice->free.holds || slice->turn.credit_ns >= VG_CORE_TURN_CREDIT_NS;
}

/* A turn that keeps others waiting costs the hand-over at least, whether anything is launched or not. */
void vg_core_begin_turn(struct vg_core *core, struct vg_core_slice *slice);
/* Another slice waits at its closed gate, and not because of its maximum. */
bool vg_core_any_waits(const struct vg_core *core, const struct vg_core_slice *but);
/* The deadline of a latency slice's burst that begins now. */
void vg_core_set_deadline(struct vg_core_slice *slice, uint64_t now_ns);
bool vg_core_lately_active(const struct vg_core_slice *slice, uint64_t now_ns);
/* Other slices have been active lately. */
static inline bool vg_core_others_active(const struct vg_core *core, const struct vg_core_slice *self) {
  return core->recent_active > vg_core_lately_active(self, core->last_ns);
}
void vg_core_count_lately(struct vg_core *core);
/* Tokens from which a gate that was closed for its maximum opens again: enough to be worth opening it. */
int64_t vg_core_cap_needed(const struct vg_core *core, const struct vg_core_slice *slice);
/* Part of a gang whose kernels may spin because a launch waits at another device's gate. They are charged for that, so
 * by its maximum or its virtual time it would never be next. */
bool vg_core_is_caught(const struct vg_core *core, const struct vg_core_slice *slice);
/* It was let in as one that is caught, and the other devices of its gang need a moment to follow. */
bool vg_core_is_rescued(const struct vg_core *core, const struct vg_core_slice *slice);
/* Its maximum on this device lets it run, and it is not paused. */
bool vg_core_below_maximum(const struct vg_core *core, const struct vg_core_slice *slice);
/* No maximum keeps it from running: neither here nor, for a gang, on its other devices. */
bool vg_core_may_run(const struct vg_core *core, const struct vg_core_slice *slice);
/* Another saturating slice waits, and not because of its maximum. */
bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self);
/* Charges the time since the last step to the slices that have used it. */
void vg_core_charge(struct vg_core *core, uint64_t now_ns);
/* The entitlements of the slot's slices together change when one of them does. */
void vg_core_sum_slot(struct vg_core *core);
/* May a saturating slice's work run beside others? A process that does not even notice that its gate was closed is
 * stopped: what it had launched is bounded and soon over, so it stops counting. */
bool vg_core_shares_device(const struct vg_core_slice *slice, uint64_t now_ns);

/* ---- entitlements.c ---- */

void vg_core_note_activity(struct vg_core_slice *slice, uint64_t now_ns);
/* Once in a window. */
void vg_core_measure_demand(struct vg_core_slice *slice);
void vg_core_entitle(struct vg_core *core, uint64_t now_ns);
/* Virtual time of the slot: the least of the slices that take turns; it never falls. A stopped slice is moved along:
 * otherwise it would keep the others from running for as long when it continues. */
void vg_core_raise_floor(struct vg_core *core, uint64_t now_ns);

/* ---- outputs.c ---- */

static inline void vg_core_set_word(struct vg_core_slice *slice, uint32_t gate_state) {
  uint32_t epoch = (slice->out.word >> VG_GATE_EPOCH_SHIFT) + 1;
  slice->out.word = epoch << VG_GATE_EPOCH_SHIFT | gate_state;
}

/* What follows from the gates: bounds, what the shims are to report, the regime. Returns when the next step is due. */
uint64_t vg_core_outputs(struct vg_core *core, uint64_t now_ns);

#endif
