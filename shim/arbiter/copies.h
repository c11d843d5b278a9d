/*
 * copies.h - how the slices of a device divide one of its links to the host. Mirrors models/arbiter/copies.py. Pure.
 */
#ifndef VG_ARBITER_COPIES_H
#define VG_ARBITER_COPIES_H
#include "arbiter/model.h"

/* A slice in one direction. */
struct vg_core_copier {
  uint32_t min_milli;
  uint32_t max_milli;
  uint32_t weight;               /* of what the minima leave; at least 1 */
  uint64_t demand_bytes_per_ms;  /* what it would copy */
  uint64_t granted_bytes_per_ms; /* of its demand */
  uint64_t bytes_per_ms;         /* what it may copy: at least that, its minimum and a little, and what is left over */
};

/* How much a slice would copy that has copied so much in the last window; delayed: it waited for its part meanwhile.
 * before: the demand of the window before. */
uint64_t vg_core_copy_demand(uint64_t copied_bytes_per_ms, bool delayed, uint64_t before_bytes_per_ms,
                             uint64_t link_bytes_per_ms);
void vg_core_divide_link(struct vg_core_copier *copiers, int count, uint64_t link_bytes_per_ms);

#endif
