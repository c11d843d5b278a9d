/*
 * run_time.h - a set of times in which work ran, as far as they are not settled yet: disjoint, in order, and few. Where
 * more come than there is space for, the shortest pause between two counts as running.
 */
#ifndef VG_BASE_RUN_TIME_H
#define VG_BASE_RUN_TIME_H
#include <stdint.h>

#define VG_RUNS 256

struct vg_run {
  uint64_t begin_ns, end_ns;
};

struct vg_runs {
  uint32_t count;
  struct vg_run of[VG_RUNS];
};

void vg_runs_add(struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns); /* nothing, if it ends before it begins */
/* Adds so much of the time from begin_ns to end_ns as is not in the set yet: the latest, or the first. Less, where
 * there is less. */
void vg_runs_fill_latest(struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns, uint64_t length_ns);
void vg_runs_fill_first(struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns, uint64_t length_ns);
void vg_runs_add_all(struct vg_runs *runs, const struct vg_runs *more);
/* How much of the time from begin_ns to end_ns is in the set. */
uint64_t vg_runs_within(const struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns);
uint64_t vg_runs_last(const struct vg_runs *runs, uint64_t until_ns); /* the end of the last one before that; or 0 */
void vg_runs_forget(struct vg_runs *runs, uint64_t until_ns);

#endif
