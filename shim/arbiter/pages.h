/*
 * pages.h - the tenants' pages as the arbiter's thread reads and writes them. Report pages are hostile: every
 * word is copied once and validated. All under the arbiter's mutex.
 */
#ifndef VG_ARBITER_PAGES_H
#define VG_ARBITER_PAGES_H
#include "arbiter/state.h"

/* Fills the core's inputs from every page that is due. */
void vg_pages_read(struct vg_arbiter *arbiter, uint64_t now_ns);
/* Before the first round after the arbiter stood still: what processes did meanwhile is not counted, and they come back
 * from their timetables at once. */
void vg_pages_end_gap(struct vg_arbiter *arbiter, uint64_t now_ns);
/* Writes the core's decisions to the control pages, opened gates first. */
void vg_pages_publish(struct vg_arbiter *arbiter);
/* How long others had work outstanding, for what a process takes for its own time on the device. */
void vg_pages_publish_busy(struct vg_arbiter *arbiter, uint64_t now_ns);
/* Gives the next few processes their heartbeat and reads their pages. Returns whether a round is due for them. */
bool vg_pages_beat(struct vg_arbiter *arbiter, uint64_t now_ns);
/* How long until the next heartbeat at most. */
uint64_t vg_pages_period_ns(const struct vg_arbiter *arbiter);
/* Not all processes rest any more: the next heartbeat is a usual period from now. */
void vg_pages_beat_soon(struct vg_arbiter *arbiter, uint64_t now_ns);
/* A process has rung: its page is read at each heartbeat again. */
void vg_pages_wake(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns);
/* A process's control page is complete after this, before the tenant sees it. */
void vg_pages_begin(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns);

#endif
