/*
 * waiting_work.c - outstanding work that does not run, since its streams wait for something else (stream_wait.c). While
 * all streams with work wait, no work counts as running; the helper looks now and then whether some runs again. When it
 * began, and what has run and completed before the helper looks, is measured (work_runs.c).
 */
#include "gate/state.h"

#define LOOK_LEAST_NS 200000ull
#define LOOK_MOST_NS 1000000ull
#define LOOK_PART 16 /* of the time for which work has waited */

void vg_gate_renew_waiting(struct vg_device *device) {
  VG_STORE_RELAXED(&device->gate->accepted_ns, vg_prim_now_ns());
  for (struct vg_work *work = device->gate->waits ? VG_LOAD(&device->gate->works) : NULL; work; work = work->next) {
    vg_work_lock(work);
    vg_work_renew_waiting(work);
    vg_unlock(&work->lock);
  }
}

void vg_gate_begin_waiting(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  if (!gate->waits) gate->waits_since_ns = gate->waits_seen_ns = vg_prim_now_ns();
  VG_STORE_RELAXED(&gate->waits, true);
  vg_gate_wake_helper(device);
  pthread_mutex_unlock(&gate->mutex);
}

void vg_gate_mark_tails(struct vg_device *device, uint64_t since_ns, uint64_t now_ns) {
  if (VG_LIKELY(!vg_gate_may_wait(device))) return;
  pthread_mutex_lock(&vg_gate_capture_mutex); /* none begins meanwhile */
  struct vg_work *first = VG_LOAD(&vg_gate_captures) ? NULL : VG_LOAD(&device->gate->works);
  for (struct vg_work *work = first; work; work = work->next) {
    vg_work_lock(work);
    vg_work_mark_tails(work, since_ns, now_ns);
    vg_unlock(&work->lock);
  }
  pthread_mutex_unlock(&vg_gate_capture_mutex);
}

bool vg_gate_rest(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  if (VG_LIKELY(!vg_gate_may_wait(device)) || !gate->busy.since_ns || VG_LOAD_RELAXED(&gate->solo_dirty)) return false;
  struct vg_work *locked;
  vg_gate_lock_all(device, &locked);
  bool rests = vg_gate_none_runs(device, locked);
  if (rests) {
    vg_gate_report_all(device, locked);
    vg_gate_become_idle(device, now_ns);
    gate->waits_since_ns = gate->waits_seen_ns = now_ns;
  }
  vg_gate_unlock_all(locked);
  if (rests && !vg_gate_give_up(device)) vg_gate_ring_edge(device);
  return rests;
}

uint64_t vg_gate_look_at_waiting(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  vg_gate_reap(device, now_ns);
  vg_gate_lock_all(device, &locked);
  bool runs = vg_gate_running(locked) != 0;
  vg_gate_unlock_all(locked);
  if (runs && !gate->busy.since_ns) {
    vg_gate_become_busy(device, gate->settled_ns);
    return 0;
  }
  gate->waits_seen_ns = now_ns;
  uint64_t pause_ns = (now_ns - gate->waits_since_ns) / LOOK_PART;
  if (pause_ns < LOOK_LEAST_NS) pause_ns = LOOK_LEAST_NS;
  return now_ns + (pause_ns < LOOK_MOST_NS ? pause_ns : LOOK_MOST_NS);
}
