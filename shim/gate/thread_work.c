/* thread_work.c - see thread_work.h: the books of a thread, with its estimates per function and grid class, and its
 * tally. */
#include "gate/thread_work.h"

#include <stdlib.h>

#include "base/prim.h"

/* ---- estimates ---- */

uint64_t vg_work_known_cost(const struct vg_work *work, const void *function, uint64_t threads) {
  uint64_t key = vg_work_key(function, threads);
  size_t place = (size_t)(vg_work_estimate_at((struct vg_work *)(uintptr_t)work, key) - work->estimates);
  for (size_t probe = place; probe < place + VG_WORK_PROBES; probe++) {
    const struct vg_estimate *row = &work->estimates[probe % VG_WORK_ESTIMATES];
    if (row->key == key) return VG_LOAD_RELAXED(&row->count) ? VG_LOAD_RELAXED(&row->cost_ns) : 0;
    if (!row->key) break;
  }
  return 0;
}

struct vg_estimate *vg_work_find_estimate(struct vg_work *work, const void *function, uint64_t threads) {
  uint64_t key = vg_work_key(function, threads);
  struct vg_estimate *first = vg_work_estimate_at(work, key);
  size_t place = (size_t)(first - work->estimates);
  for (size_t probe = place; probe < place + VG_WORK_PROBES; probe++) {
    struct vg_estimate *row = &work->estimates[probe % VG_WORK_ESTIMATES];
    if (row->key == key) return row;
    if (!row->key) {
      first = row;
      break;
    }
  }
  vg_lock(&work->lock); /* a marker may point to the estimate that it replaces */
  *first = (struct vg_estimate){.key = key,
                                .function = function,
                                .grid_class = vg_work_grid_class(threads),
                                .countdown = 1,
                                .samples_ns = work->samples_ns[first - work->estimates]};
  vg_estimate_set_cost(first, 0);
  vg_unlock(&work->lock);
  return first;
}

/* ---- the tally ---- */

struct vg_work *vg_work_new(struct vg_device *device) {
  struct vg_work *work = calloc(1, sizeof *work); /* large, but most of its pages are never touched */
  if (work) work->device = device;
  return work;
}

void vg_work_take_tally(struct vg_work *work) {
  struct vg_tally *tally = &work->tally;
  int64_t left = VG_LOAD(&tally->left);
  uint64_t added = (uint64_t)(tally->taken - left), added_ns = added >> VG_TALLY_LAUNCH_BITS;
  work->launched += added - (added_ns << VG_TALLY_LAUNCH_BITS);
  if (tally->stream) {
    tally->stream->cost_ns += added_ns;
    tally->stream->unmarked_ns += added_ns;
    if (!tally->stream->stale) vg_work_set_outstanding(work, work->outstanding_ns + added_ns);
  } else {
    work->done_ns += added_ns;
  }
  VG_STORE(&tally->taken, left);
}

void vg_work_lock(struct vg_work *work) {
  vg_lock(&work->lock);
  vg_work_take_tally(work);
}

void vg_work_open_tally(struct vg_work *work, uint64_t room_ns) {
  int64_t left = (room_ns < VG_TALLY_MOST_NS ? (int64_t)room_ns : VG_TALLY_MOST_NS) << VG_TALLY_LAUNCH_BITS;
  VG_STORE(&work->tally.taken, left);
  VG_STORE(&work->tally.left, left);
}
