/* array_boxes.c - see array_boxes.h. */
#include "ledger/array_boxes.h"

#include <stdlib.h>

struct vg_box vg_box_of(const CUarrayMapInfo *info, bool whole) {
  struct vg_box box = {.to = {1, 1, 1}};
  if (whole) return box;
  if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    box.level = VG_BOX_TAIL;
    box.layer = info->subresource.miptail.layer;
    box.from[0] = info->subresource.miptail.offset;
    box.to[0] = box.from[0] + info->subresource.miptail.size;
    return box;
  }
  const __typeof__(info->subresource.sparseLevel) *at = &info->subresource.sparseLevel;
  box.level = at->level;
  box.layer = at->layer;
  box.from[0] = at->offsetX, box.to[0] = (uint64_t)at->offsetX + at->extentWidth;
  box.from[1] = at->offsetY, box.to[1] = (uint64_t)at->offsetY + at->extentHeight;
  box.from[2] = at->offsetZ, box.to[2] = (uint64_t)at->offsetZ + at->extentDepth;
  return box;
}

static bool overlap(const struct vg_box *a, const struct vg_box *b) {
  bool all = a->level == b->level && a->layer == b->layer;
  for (int axis = 0; axis < 3; axis++) all = all && a->from[axis] < b->to[axis] && b->from[axis] < a->to[axis];
  return all;
}

static bool add(struct vg_box **boxes, const struct vg_box *box, vg_box_count count) {
  struct vg_box *made = malloc(sizeof *made);
  if (!made) return false;
  *made = *box;
  made->next = *boxes;
  *boxes = made;
  count(made->handle, 1);
  return true;
}

/* Adds what of `rest` lies outside of box, and shrinks rest to what lies inside. */
static bool keep_outside(struct vg_box **boxes, struct vg_box *rest, const struct vg_box *box, vg_box_count count) {
  for (int axis = 0; axis < 3; axis++) {
    struct vg_box before = *rest, behind = *rest;
    before.to[axis] = box->from[axis];
    behind.from[axis] = box->to[axis];
    if (rest->from[axis] < box->from[axis]) {
      if (!add(boxes, &before, count)) return false;
      rest->from[axis] = box->from[axis];
    }
    if (rest->to[axis] > box->to[axis]) {
      if (!add(boxes, &behind, count)) return false;
      rest->to[axis] = box->to[axis];
    }
  }
  return true;
}

void vg_boxes_cut(struct vg_box **boxes, const struct vg_box *box, vg_box_count count) {
  struct vg_box *outside = NULL;
  for (struct vg_box **link = boxes; *link;) {
    struct vg_box *hit = *link, rest = *hit;
    if (!overlap(hit, box)) {
      link = &hit->next;
      continue;
    }
    if (!keep_outside(&outside, &rest, box, count)) break;
    *link = hit->next;
    count(hit->handle, -1);
    free(hit);
  }
  struct vg_box **end = &outside;
  while (*end) end = &(*end)->next;
  *end = *boxes;
  *boxes = outside;
}

void vg_boxes_put(struct vg_box **boxes, const struct vg_box *box, uint64_t handle, vg_box_count count) {
  struct vg_box mapped = *box;
  mapped.handle = handle;
  struct vg_box *fresh = NULL;
  add(&fresh, &mapped, count); /* first, since it may be what is mapped there already */
  vg_boxes_cut(boxes, box, count);
  if (!fresh) return;
  fresh->next = *boxes;
  *boxes = fresh;
}

void vg_boxes_clear(struct vg_box **boxes, vg_box_count count) {
  while (*boxes) {
    struct vg_box *box = *boxes;
    *boxes = box->next;
    count(box->handle, -1);
    free(box);
  }
}
