/*
 * slot.h - the slot: its members, its holder and its lease. Mirrors models/arbiter/slot.py. Pure.
 */
#ifndef VG_ARBITER_SLOT_H
#define VG_ARBITER_SLOT_H
#include "arbiter/device.h"

/* NULL: none is in that state. */
struct vg_core_slice *vg_core_find_in_slot(struct vg_core *core, enum vg_core_state state);
/* Slices enter and leave the slot when demands are measured, at the end of a window; gangs at any step, since that
 * depends on the other gangs of the device. */
void vg_core_review_slot_members(struct vg_core *core, uint64_t now_ns);
/* The slot stays empty while a latency slice is urgent or a free slice is further behind. */
void vg_core_review_vacancy(struct vg_core *core);
/* Whether the holder keeps the slot, and until when. */
void vg_core_review_holder(struct vg_core *core, struct vg_core_slice *holder, uint64_t now_ns);
/* Gives the empty slot to the next candidate. */
void vg_core_grant(struct vg_core *core, uint64_t now_ns);

#endif
