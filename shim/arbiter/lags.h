/*
 * lags.h - which slice has received less than its entitlement, and by how much. Mirrors models/arbiter/lags.py. Pure.
 */
#ifndef VG_ARBITER_LAGS_H
#define VG_ARBITER_LAGS_H
#include "arbiter/maximum.h"

/* Mean of the virtual times in the slot beyond the floor, weighted by entitlements. */
int64_t vg_core_slot_mean_ns(const struct vg_core *core);
/* Entitlement minus usage; for a saturating slice its part of the slot's lag, and how far it is behind the others
 * there. */
int64_t vg_core_lag_of(const struct vg_core *core, const struct vg_core_slice *slice, int64_t slot_mean_ns);

/* A free slice that wants to run and has used less than its entitlement. */
static inline bool vg_core_is_short(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (!slice->present || slice->saturating || !vg_core_active(slice)) return false;
  return slice->free.lag_ns > VG_CORE_SHORT_NS && vg_core_may_run(core, slice);
}

/* The holder of the slot uses it, or has just been let in. */
static inline bool vg_core_holder_is_active(const struct vg_core *core, const struct vg_core_slice *holder) {
  if (holder->in.quiet) return false;
  return holder->in.outstanding || holder->in.wants || core->last_ns < holder->gate.grant_ns + VG_CORE_WAKE_GRACE_NS;
}

/* A saturating slice that may have the slot next. */
static inline bool vg_core_is_candidate(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (!vg_core_in_slot(slice) || !vg_core_may_run(core, slice)) return false;
  return slice->gate.state == VG_CORE_OPEN ? vg_core_holder_is_active(core, slice) : vg_core_waits(slice);
}

static inline int64_t vg_core_slot_behind(const struct vg_core *core) {
  return vg_core_due_time(core->slot_lag_ns, core->slot_ppm ? core->slot_ppm : VG_CORE_MILLI);
}

/* How far behind the short slice is that is furthest behind, for a free slice or (NULL) for the slot; far ahead when no
 * other slice is short. */
int64_t vg_core_most_behind(const struct vg_core *core, const struct vg_core_slice *but);
/* An upper bound of vg_core_most_behind() for all slices: fewer questions, asked once. */
int64_t vg_core_furthest_behind(const struct vg_core *core);
/* Time used while no slice was behind cost no other slice anything: it is no debt to slices that arrive later. A slice
 * with precedence is served first whenever it wants to run, so others are not the reason if it is behind. */
void vg_core_forgive(struct vg_core *core);

#endif
