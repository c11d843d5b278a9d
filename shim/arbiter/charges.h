/*
 * charges.h - what a charge of device time counts for, and what a turn costs at least. Mirrors
 * models/arbiter/charges.py. Pure.
 */
#ifndef VG_ARBITER_CHARGES_H
#define VG_ARBITER_CHARGES_H
#include "arbiter/device.h"

/* May others wait for it? Turns without work are few, whatever its page reports. */
static inline bool vg_core_may_begin_turn(const struct vg_core_slice *slice) {
  return slice->free.holds || slice->turn.credit_ns >= VG_CORE_TURN_CREDIT_NS;
}

/* A turn that keeps others waiting costs the hand-over at least, whether anything is launched or not. */
void vg_core_begin_turn(struct vg_core *core, struct vg_core_slice *slice);
/* Charges used device time: to the share, the maximum, the guarantee and the statistics. What a turn costs beyond what
 * was used is no usage of the device: it is charged to the share alone. idle_ns: the part of used_ns in which the slice
 * kept the device from others with nothing to run; it is no usage that is reported. */
void vg_core_charge(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns, int64_t idle_ns);

#endif
