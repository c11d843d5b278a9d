/*
 * outputs.h - what follows from the gates: the bound on outstanding work, what the shims are to report, the regime as
 * users see it, and when the next step is due. Mirrors models/arbiter/outputs.py. Pure.
 */
#ifndef VG_ARBITER_OUTPUTS_H
#define VG_ARBITER_OUTPUTS_H
#include "arbiter/device.h"

struct vg_core_crowd { /* the slices of the device, counted */
  int attached_count, on_device_count, lately_active_count, capped_count, ready_count;
  int free_active;
  int turns; /* saturating and active */
  int saturating_lately;
  int latency;            /* attached, of the latency class */
  bool throttles;         /* a slice is kept waiting so that another one gets its due */
  bool has_limited_slice; /* a slice is limited by its maximum */
  int64_t slot_mean_ns;
  /* Lately active free slices that are behind: the one furthest behind, how far, and how far the next one is. */
  const struct vg_core_slice *furthest;
  int64_t furthest_ns, next_furthest_ns;
  int64_t least_behind_ns; /* of the free slices that were active lately */
};

struct vg_core_crowd vg_core_count_slices(const struct vg_core *core, uint64_t now_ns);
void vg_core_set_outputs(struct vg_core *core, const struct vg_core_crowd *crowd, uint64_t now_ns);
/* When the next step is due at the latest. */
uint64_t vg_core_next_deadline(const struct vg_core *core, const struct vg_core_crowd *crowd, uint64_t now_ns);

#endif
