/*
 * turns.h - leases of a slice with several saturating processes. Where all of them had each lease, the hardware would
 * switch between their contexts every millisecond, and all would have to drain at its end. So one process has the
 * lease, another one the next. All under the arbiter's mutex.
 */
#ifndef VG_ARBITER_TURNS_H
#define VG_ARBITER_TURNS_H
#include "arbiter/state.h"

/* The process that alone is to be given the slice's gate word; NULL: all are. Called when the word is published. */
struct vg_process *vg_turn_give(const struct vg_core *core, const struct vg_core_slice *slice, struct vg_lane *lane);
/* One process has the slice's lease, and the others are to have it as well. */
bool vg_turn_is_over(const struct vg_core *core, const struct vg_core_slice *slice, const struct vg_lane *lane);
/* The process waits for another one of its slice, whose lease it is. */
bool vg_turn_is_awaited(const struct vg_lane *lane, const struct vg_process *process);

#endif
