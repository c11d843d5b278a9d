/*
 * completed.h - completed work as the tenants report it, and how far it is believed. Mirrors
 * models/arbiter/completed.py. Pure.
 */
#ifndef VG_ARBITER_COMPLETED_H
#define VG_ARBITER_COMPLETED_H
#include "arbiter/device.h"

/* Counts reported work, at most as much as the time with work outstanding: the slice's processes together cannot
 * complete more. Some of that time may be reported later. Reported work also refills the buckets of turns and of gate
 * words. */
void vg_core_count_done(struct vg_core_slice *slice, uint64_t passed_ns);
/* Compares the time in which several slices ran, or one while another one waited, with the work that they report. The
 * difference is unexplained time. */
void vg_core_weigh(struct vg_core *core, uint64_t now_ns);
/* What is charged beyond the completed work that a slice reports, as far as no slice's reports explain the time: up to
 * its provisional charge; for the slice that reports least of its time, up to all time in which it had work
 * outstanding; up to half of its provisional charge where saturating slices do not report what they complete. */
int64_t vg_core_take_unexplained_ns(struct vg_core *core, const struct vg_core_slice *slice, int64_t done_ns);

#endif
