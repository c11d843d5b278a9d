/*
 * maximum.h - the maximum of a slice: what of it is left, and whether it lets the slice run. Mirrors
 * models/arbiter/maximum.py. Pure.
 */
#ifndef VG_ARBITER_MAXIMUM_H
#define VG_ARBITER_MAXIMUM_H
#include "arbiter/device.h"

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

/* Another slice waits at its closed gate, and not because of its maximum. */
bool vg_core_any_waits(const struct vg_core *core, const struct vg_core_slice *but);
/* Another saturating slice waits, and not because of its maximum. */
bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self);
/* A maximum limits a slice from the time when its bucket is empty until it is nearly full. */
void vg_core_note_limits(struct vg_core *core);

#endif
