/*
 * array_boxes.h - which physical memory is mapped where into one sparse array: boxes of elements that do not overlap,
 * each with the handle behind it. Pure; used by the hook (hooks/sparse.c) and by the simulated driver.
 */
#ifndef VG_ARRAY_BOXES_H
#define VG_ARRAY_BOXES_H
#include "gen/abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

#define VG_BOX_TAIL UINT32_MAX /* as a level: the mip tail, a range of bytes */

struct vg_box {
  struct vg_box *next;
  uint64_t handle;
  uint32_t level, layer;
  uint64_t from[3], to[3];
};

/* Called for each box more (1) and less (-1), more first: a handle that loses and gains does not touch 0. */
typedef void (*vg_box_count)(uint64_t handle, int delta);

/* What an entry of cuMemMapArrayAsync is about. whole: the array's mapping is deferred, all of it. */
struct vg_box vg_box_of(const CUarrayMapInfo *info, bool whole);
/* Unmaps what lies in it; where there is no memory for a cut the whole box stays, and with it its handle. */
void vg_boxes_cut(struct vg_box **boxes, const struct vg_box *box, vg_box_count count);
/* Maps handle there, in place of what is there. */
void vg_boxes_put(struct vg_box **boxes, const struct vg_box *box, uint64_t handle, vg_box_count count);
void vg_boxes_clear(struct vg_box **boxes, vg_box_count count);

#endif
