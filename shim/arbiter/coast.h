/*
 * coast.h - the static timetable that shims follow without a daemon (DESIGN D9): minima first, the rest by weight up to
 * maxima, and at least a hundredth for each slice. Gangs come first, in the order of their ids, so that their slots
 * coincide on all their devices. Pure.
 */
#ifndef VG_ARBITER_COAST_H
#define VG_ARBITER_COAST_H
#include "arbiter/device.h"

#define VG_CORE_COAST_PERIOD_US 20000

/* The part of the period of each of the core's slices; empty for a slice that is not attached, or paused. */
void vg_core_coast(const struct vg_core *core, struct vg_coast_slot *ret_slots);

#endif
