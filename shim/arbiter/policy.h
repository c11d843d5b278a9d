/*
 * policy.h - the core of the arbiter, its decisions, pure: no clock, no pages, no system calls. arbiter.c (the thread)
 * fills the inputs, calls vg_core_step() with the time, and publishes the outputs; tests do the same with a fake clock.
 * models/arbiter/ is the same policy as a reference model: equal inputs give equal decisions (tests/arbiter).
 *
 * Algorithm (DESIGN D6): a slice is free or saturating, by its demand. Free: it leaves gaps, or has just arrived; its
 * gate is open, the hardware time-slices between it and whatever else runs, and it is charged for completed work.
 * Saturating: it always wants the device; such slices take turns in one slot by leases, the smallest virtual time first
 * (start-time fair queueing), and are charged the time that free slices have left. A lease is extended rather than
 * granted again, given up early by a holder with nothing to run, charged after it has drained, and open-ended while no
 * other slice wants the slot. When a holder does not drain in time, its gate stays closed and the gate of the next one
 * opens: the hardware time-slices between them and the time is split. Entitlements follow from water-filling all
 * demands into minima, priorities, weights and maxima. A slice that has used more than its entitlement waits as long as
 * a free slice that wants to run has used less than its own. Maxima are token buckets.
 */
#ifndef VG_ARBITER_POLICY_H
#define VG_ARBITER_POLICY_H
#include "arbiter/device.h"

void vg_core_init(struct vg_core *core, const struct vg_arbiter_params *params, uint64_t now_ns);
struct vg_core_slice *vg_core_find(struct vg_core *core, uint64_t id); /* NULL: not there */
/* Creates or changes a slice, in force with the next step; NULL when all places are taken. */
struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *given);
void vg_core_remove(struct vg_core *core, uint64_t id);
/* One step; returns when the next one is due at the latest (VG_CORE_NEVER: only when something happens). */
uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns);

#endif
