/* residence.c - see residence.h. A page that lies about this hurts its own slice alone. */
#include "arbiter/residence.h"

#include <errno.h>
#include <limits.h>

#include "arbiter/policy.h"
#include "base/prim.h"

#define DEPARTURE_SHIFT 10      /* of a clock of ns: it is faster than any departures */
#define WAITING_CALLS_MAX 65536 /* of a process: the sum over all is still a number */

void vg_residence_init(struct vg_arbiter *arbiter) {
  arbiter->departure = (uint32_t)(vg_prim_now_ns() >> DEPARTURE_SHIFT);
}

void vg_residence_set(struct vg_arbiter *arbiter, const struct vg_core_slice *slice) {
  struct vg_lane *lane = vg_lane_of(arbiter, slice);
  if ((lane->residence != 0) == slice->params.leaves) return;
  if (slice->params.leaves && !++arbiter->departure) arbiter->departure = 1;
  lane->residence = slice->params.leaves ? arbiter->departure : 0;
}

int64_t vg_residence_ask_move(struct vg_arbiter *arbiter, const struct vg_core_slice *slice, uint32_t where) {
  return vg_lane_of(arbiter, slice)->move_word = ++arbiter->moves << VG_MOVE_SHIFT | where;
}

static bool publish_move(const struct vg_lane *lane, struct vg_process *process) {
  if (process->move_word == lane->move_word) return false;
  process->move_word = lane->move_word;
  VG_STORE(&process->control->move_word, lane->move_word);
  return true;
}

bool vg_residence_publish(const struct vg_lane *lane, struct vg_process *process) {
  bool asks = publish_move(lane, process);
  if (process->residence == lane->residence) return asks;
  process->residence = lane->residence;
  VG_STORE(&process->control->residence, lane->residence);
  vg_prim_futex_wake(&process->control->residence, INT_MAX);
  return true;
}

/* Only of a slice that rotates: the count is at the page's end, and a thousand pages are in no cache. */
static bool has_called(struct vg_process *process) {
  if (!process->slice->params.rotates) return false;
  uint64_t before = process->calls;
  process->calls = VG_LOAD_RELAXED(&process->report->calls);
  return process->calls != before;
}

void vg_residence_note_work(struct vg_process *process, bool worked, uint64_t now_ns) {
  if (has_called(process) || worked) process->slice->stats.last_work_ns = now_ns;
}

static uint32_t waiting_calls_of(const struct vg_process *process) {
  uint64_t count =
      (uint64_t)VG_LOAD_RELAXED(&process->report->waiting_calls) + VG_LOAD_RELAXED(&process->report->waiting);
  return count < WAITING_CALLS_MAX ? (uint32_t)count : WAITING_CALLS_MAX;
}

/* What the process was last shown may be of the departure before: it has not heard of this one then. */
void vg_residence_add(const struct vg_lane *lane, const struct vg_process *process, struct vg_slice_stats *stats) {
  bool leaves = lane->residence != 0;
  if (leaves) stats->waiting_calls += waiting_calls_of(process);
  stats->processes_in_driver += !leaves || VG_LOAD(&process->report->left_word) != lane->residence;
  uint32_t word = VG_LOAD(&process->report->moved_word); /* before the others, which it writes first */
  uint32_t state = VG_LOAD(&process->report->moved_state), reason = VG_LOAD_RELAXED(&process->report->stays_reason);
  bool first = process == lane->first;
  stats->moved_word = first || word == stats->moved_word ? word : 0; /* of several programs: when all have answered */
  if (first || state == VG_MOVED_AWAY) stats->moved_state = state;
  if (first || !stats->stays_reason) stats->stays_reason = reason;
  stats->movable_bytes += vg_core_least(process->memory.movable_bytes, process->memory.used_bytes);
}

int64_t vg_arbiter_slice_move(struct vg_arbiter *arbiter, uint64_t slice_id, uint32_t where) {
  pthread_mutex_lock(&arbiter->mutex);
  const struct vg_core_slice *slice = vg_core_find(&arbiter->core, slice_id);
  int64_t word = slice && where <= VG_MOVE_IN ? vg_residence_ask_move(arbiter, slice, where) : -EINVAL;
  vg_arbiter_leave(arbiter, 0);
  return word;
}
