/*
 * entitlements.h - demands, entitlements and the floor of virtual time. Mirrors models/arbiter/entitlements.py. Pure.
 */
#ifndef VG_ARBITER_ENTITLEMENTS_H
#define VG_ARBITER_ENTITLEMENTS_H
#include "arbiter/device.h"

/* Sets the deadline of a latency slice's burst that begins now. */
void vg_core_set_deadline(struct vg_core_slice *slice, uint64_t now_ns);
void vg_core_note_activity(struct vg_core_slice *slice, uint64_t now_ns);
/* Work and idle time of the last window, averaged over about four. */
void vg_core_measure_demand(struct vg_core_slice *slice);
/* Entitlements by water-filling: minima first, then by priority and weight, none beyond its maximum or its demand. */
void vg_core_set_entitlements(struct vg_core *core, uint64_t now_ns);
/* Virtual time of the slot: the least of the slices that take turns; it never falls. A stopped slice is moved along:
 * otherwise it would keep the others from running for as long when it continues. */
void vg_core_raise_floor(struct vg_core *core, uint64_t now_ns);

#endif
