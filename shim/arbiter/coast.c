/* coast.c - see coast.h. */
#include "arbiter/coast.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_MILLI 10

struct claims { /* sums over all attached slices */
  uint64_t reserved, weights;
};

static uint64_t least_milli(const struct vg_core_slice *slice) {
  return slice->params.min_milli > LEAST_MILLI ? slice->params.min_milli : LEAST_MILLI;
}

static void claim(struct claims *claims, const struct vg_core_slice *slice) {
  claims->reserved += least_milli(slice);
  if (slice->params.max_milli > slice->params.min_milli) claims->weights += vg_core_weight(slice);
}

static uint32_t share_milli(const struct claims *claims, const struct vg_core_slice *slice) {
  uint64_t least = least_milli(slice);
  if (claims->reserved > VG_CORE_MILLI) return (uint32_t)(least * VG_CORE_MILLI / claims->reserved);
  uint64_t share = least;
  if (slice->params.max_milli > slice->params.min_milli)
    share += (VG_CORE_MILLI - claims->reserved) * vg_core_weight(slice) / claims->weights;
  uint64_t most = slice->params.max_milli > least ? slice->params.max_milli : least;
  return (uint32_t)(share < most ? share : most);
}

static int in_order(const void *left, const void *right) {
  const struct vg_core_slice *a = *(const struct vg_core_slice *const *)left;
  const struct vg_core_slice *b = *(const struct vg_core_slice *const *)right;
  bool a_gang = a->params.gang != VG_GANG_NONE, b_gang = b->params.gang != VG_GANG_NONE;
  if (a_gang != b_gang) return a_gang ? -1 : 1;
  return a->id < b->id ? -1 : 1;
}

void vg_core_coast(const struct vg_core *core, struct vg_coast_slot *ret_slots) {
  const struct vg_core_slice *order[VG_SLICES_MAX];
  struct claims claims = {0};
  size_t count = 0;
  memset(ret_slots, 0, (size_t)core->slice_count * sizeof *ret_slots);
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || !slice->in.attached || slice->params.paused) continue;
    claim(&claims, slice);
    order[count++] = slice;
  }
  qsort(order, count, sizeof *order, in_order);
  uint32_t begin_milli = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t end_milli = begin_milli + share_milli(&claims, order[i]);
    ret_slots[order[i] - core->slices] =
        (struct vg_coast_slot){.begin_us = begin_milli * VG_CORE_COAST_PERIOD_US / VG_CORE_MILLI,
                               .end_us = end_milli * VG_CORE_COAST_PERIOD_US / VG_CORE_MILLI};
    begin_milli = end_milli;
  }
}
