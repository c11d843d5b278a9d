/*
 * overlap.h - the time in which a slice had work on the device, from that of its processes: what two of them had at the
 * same time counts once. They report when it was (vg_run_shown), some of them late; until then both count, and a slice
 * counts no more than the clock. Beyond the clock nothing counts while runs wait to be read, nor what was overwritten
 * before it was read.
 */
#ifndef VG_ARBITER_OVERLAP_H
#define VG_ARBITER_OVERLAP_H
#include "arbiter/state.h"

/* A process's time has grown by so much. */
void vg_overlap_count(struct vg_lane *lane, struct vg_process *process, uint64_t more_ns, uint64_t now_ns);

/* The process has gone: it is not known when what it has not shown yet ran, and that counts no more. */
void vg_overlap_forget(struct vg_lane *lane, const struct vg_process *process);

/* Returns by how much the slice's has grown, at most passed_ns. */
uint64_t vg_overlap_take(struct vg_lane *lane, uint64_t passed_ns);

#endif
