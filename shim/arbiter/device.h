/*
 * device.h - the state of one device in the core, and what all decisions ask about its slices. Mirrors
 * models/arbiter/device.py. Pure.
 */
#ifndef VG_ARBITER_DEVICE_H
#define VG_ARBITER_DEVICE_H
#include "arbiter/model.h"

/* A process that has not noticed its closed gate for this long is stopped (SIGSTOP, a debugger). */
#define VG_CORE_STOPPED_NS (50ull * VG_CORE_MS)

struct vg_core {
  struct vg_arbiter_params params;
  struct vg_core_slice slices[VG_SLICES_MAX];
  int slice_count; /* places in slices that are or were in use */
  uint32_t regime; /* VG_REGIME_* */
  uint64_t last_ns;
  uint64_t window_ns; /* when the present window of demands began */
  uint64_t served;
  uint64_t floor_ns;           /* virtual time of the slot */
  uint32_t slot_ppm;           /* entitlements of all saturating slices together */
  int64_t slot_lag_ns;         /* entitlement minus usage of all saturating slices together */
  int64_t free_used_ns;        /* used by free slices, to be deducted from what the holder is charged */
  int64_t unexplained_ns;      /* while several ran: busy time that no slice's completed work explains */
  int64_t excess_ns;           /* while only free slices ran: completed work reported beyond the busy time */
  uint64_t available_ns;       /* while only free slices ran: recent time with work outstanding */
  uint64_t all_reported_ns;    /* completed work reported for that time */
  bool slot_reports_work;      /* saturating slices report what they complete */
  uint32_t least_reported_ppm; /* by the free slice that reports least of its time */
  bool slot_occupied;          /* during the time that is being charged */
  int recent_active;           /* slices that are active or were lately, as of last_ns */
  bool slot_reserved;          /* the slot is kept empty for a slice that is short */
  uint64_t slot_hold_until_ns; /* the slot is kept empty until then, for a pausing slice; 0: it is not */
};

/* Keeps slot_ppm: the entitlements of the slot's slices together change when one of them does. */
void vg_core_sum_slot(struct vg_core *core);
/* Keeps recent_active. */
void vg_core_count_lately(struct vg_core *core);

/* Active now or less than VG_CORE_IDLE_NS ago. */
static inline bool vg_core_lately_active(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!slice->present || !slice->in.attached) return false;
  return vg_core_active(slice) || (slice->step.last_active_ns && now_ns < slice->step.last_active_ns + VG_CORE_IDLE_NS);
}

/* A thread waits at the closed gate, and what ran before the gate was closed has drained or been noticed. */
static inline bool vg_core_waits(const struct vg_core_slice *slice) {
  if (!vg_core_wants_to_run(slice) || slice->gate.state == VG_CORE_OPEN) return false;
  return slice->gate.state == VG_CORE_SHUT || slice->in.noticed;
}

/* Other slices have been active lately. */
static inline bool vg_core_others_active(const struct vg_core *core, const struct vg_core_slice *self) {
  return core->recent_active > vg_core_lately_active(self, core->last_ns);
}

bool vg_core_another_in_slot(const struct vg_core *core, const struct vg_core_slice *self);
/* Another saturating slice waits. */
bool vg_core_another_waits(const struct vg_core *core, const struct vg_core_slice *self);
/* Another slice waits at its closed gate, and not because of its maximum. */
bool vg_core_any_waits(const struct vg_core *core, const struct vg_core_slice *but);
/* Another saturating slice waits, and not because of its maximum. */
bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self);

/* May a saturating slice's work run beside others? A process that does not even notice that its gate was closed is
 * stopped: what it had launched is bounded and soon over, so it stops counting. */
static inline bool vg_core_shares_device(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!vg_core_in_slot(slice) || slice->gate.state == VG_CORE_SHUT) return false;
  return slice->gate.state != VG_CORE_OVERLAP || vg_core_is_open(slice) || slice->in.noticed ||
         now_ns < slice->gate.close_ns + VG_CORE_STOPPED_NS;
}

/* No other slice is attached or has work outstanding. */
bool vg_core_is_alone(const struct vg_core *core, const struct vg_core_slice *self);
/* A gang's leader beside another gang's: gangs take turns whatever their demand, since side by side each could wait on
 * one device for what the other one has. */
bool vg_core_leads_beside_others(const struct vg_core *core, const struct vg_core_slice *self);

/* Depth of the token bucket of a maximum. Of idle time only a little is saved up. A slice that is active here (a gang's
 * leader may be so for its other devices), and kept from its guarantee, accrues a deficit instead, and may make up for
 * it; time beyond the guarantee is not made up. */
static inline int64_t vg_core_cap_depth(const struct vg_core *core, const struct vg_core_slice *slice,
                                        uint64_t active_ns) {
  int64_t depth_ns = vg_core_scale_ns(core->params.cap_depth_ns, slice->params.max_milli);
  int64_t own_ns = vg_core_scale_ns(VG_CORE_DEBT_MAX_NS, slice->params.min_milli);
  return vg_core_active(slice) && active_ns ? vg_core_max(depth_ns, own_ns) : depth_ns;
}

/* Tokens from which a gate that was closed for its maximum opens again: enough to be worth opening it. */
static inline int64_t vg_core_cap_needed(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->gate.state == VG_CORE_OPEN) return 0;
  uint64_t worth_ns = core->params.quantum_min_ns;
  if (slice->saturating && vg_core_others_active(core, slice)) worth_ns = core->params.quantum_ns / 2;
  return vg_core_min((int64_t)worth_ns, vg_core_scale_ns(core->params.cap_depth_ns, slice->params.max_milli) / 2);
}

/* Part of a gang whose kernels may spin because a launch waits at another device's gate. They are charged for that, so
 * by its maximum or its virtual time it would never be next. */
static inline bool vg_core_is_caught(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_leads_or_follows(slice) && slice->gate.state == VG_CORE_OVERLAP &&
         core->last_ns >= slice->gate.close_ns + VG_CORE_RESCUE_NS;
}

/* It was let in as one that is caught, and the other devices of its gang need a moment to follow. */
static inline bool vg_core_is_rescued(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_leads_or_follows(slice) && slice->gate.state == VG_CORE_OPEN && core->last_ns < slice->gate.rescue_ns;
}

/* Its maximum on this device lets it run, and it is not paused. */
static inline bool vg_core_below_maximum(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (slice->params.paused) return false;
  if (vg_core_is_uncapped(slice) || slice->bucket.cap_ns > vg_core_cap_needed(core, slice)) return true;
  return vg_core_is_caught(core, slice) || vg_core_is_rescued(core, slice);
}

/* Another device's arbiter keeps its gang from running. */
static inline bool vg_core_gang_is_stopped(const struct vg_core_slice *slice) {
  if (!vg_core_leads_or_follows(slice)) return false;
  return vg_core_follows(slice) && slice->saturating ? !slice->in.gang_go : slice->in.gang_stop;
}

/* No maximum keeps it from running: neither here nor, for a gang, on its other devices. */
static inline bool vg_core_may_run(const struct vg_core *core, const struct vg_core_slice *slice) {
  return vg_core_below_maximum(core, slice) && !vg_core_gang_is_stopped(slice);
}

/* It is of the latency class, and within its guarantee. */
static inline bool vg_core_may_precede(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->params.latency && !slice->free.overdrawn && vg_core_below_maximum(core, slice);
}

#endif
