/*
 * links.h - copies between host and device: what processes report of them, and what each may copy where a slice has a
 * part of the link. All under the arbiter's mutex.
 */
#ifndef VG_ARBITER_LINKS_H
#define VG_ARBITER_LINKS_H
#include "arbiter/state.h"

/* Adds what the process has copied since the last look to its slice's counters. */
void vg_links_read(struct vg_arbiter *arbiter, struct vg_process *process);
/* Divides the links where that is due, and shows each process its rate. Returns when it is due again; UINT64_MAX: not
 * before something else is. */
uint64_t vg_links_round(struct vg_arbiter *arbiter, uint64_t now_ns);

#endif
