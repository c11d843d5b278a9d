/*
 * gaps.h - time in which the arbiter stood still, and tenants followed their timetables. Mirrors
 * models/arbiter/gaps.py. Pure.
 */
#ifndef VG_ARBITER_GAPS_H
#define VG_ARBITER_GAPS_H
#include "arbiter/device.h"

static inline bool vg_core_stood_still(const struct vg_core *core, uint64_t now_ns) {
  return now_ns > core->last_ns + VG_CORE_STALLED_NS;
}

/* Leaves a gap out: its time is charged to no slice, and neither is its work. For all that lasts through it, it was not
 * there. A gap is measured by the arbiter's own clock: no page can make one. */
void vg_core_skip_gap(struct vg_core *core, uint64_t now_ns);

#endif
