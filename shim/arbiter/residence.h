/*
 * residence.h - slices whose memory may leave the device: what their processes are shown of it, and what they report.
 * All under the arbiter's mutex.
 */
#ifndef VG_ARBITER_RESIDENCE_H
#define VG_ARBITER_RESIDENCE_H
#include "arbiter/state.h"

/* Programs remember the last departure that they heard of, also of a daemon before this one: numbers begin at a clock.
 */
void vg_residence_init(struct vg_arbiter *arbiter);
/* The slice's parameters have changed: gives its departure a number, or ends it. Before any process sees them. */
void vg_residence_set(struct vg_arbiter *arbiter, const struct vg_core_slice *slice);
/* What its process is to do with its memory, VG_MOVE_*. Returns the word for it. */
int64_t vg_residence_ask_move(struct vg_arbiter *arbiter, const struct vg_core_slice *slice, uint32_t where);
/* Shows it to a process, before a gate word that opens. Returns whether it is news, which the helper is to know. */
bool vg_residence_publish(const struct vg_lane *lane, struct vg_process *process);
/* After its page was read. worked: it has launched, or had work outstanding. */
void vg_residence_note_work(struct vg_process *process, bool worked, uint64_t now_ns);
/* What the process's page says now: it may have rung for it, and may not have been read yet. */
void vg_residence_add(const struct vg_lane *lane, const struct vg_process *process, struct vg_slice_stats *stats);

#endif
