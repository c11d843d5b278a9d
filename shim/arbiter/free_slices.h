/*
 * free_slices.h - the free slices: which is served first, and which waits for others. Mirrors
 * models/arbiter/free_slices.py. Pure.
 */
#ifndef VG_ARBITER_FREE_SLICES_H
#define VG_ARBITER_FREE_SLICES_H
#include "arbiter/device.h"

/* The latency slice that is served before all others: of the urgent ones the one with the earliest deadline. NULL:
 * none is. */
const struct vg_core_slice *vg_core_first_latency(const struct vg_core *core);
/* Closes the gates of free slices that must wait, for their maximum or for others, and opens the others'. */
void vg_core_review_free(struct vg_core *core, uint64_t now_ns);
/* A free slice takes a turn while others are kept from running for it. */
void vg_core_note_turns(struct vg_core *core);
/* An overdrawn latency slice has no precedence until part of its debt is paid. */
void vg_core_note_debts(struct vg_core *core);

#endif
