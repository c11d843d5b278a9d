/*
 * solo.c - a slice that is alone: its launches pass uncounted, but only as long as the device keeps up with them. What
 * was launched cannot be taken back when another slice attaches, and uncounted work has no bound.
 *
 * Launches are counted at first, so that it is known what they cost. The helper ends that when little has been
 * outstanding for a while. From then on a thread that has used up its credit of uncounted launches looks: has the
 * device completed what the thread had launched when it looked before? Then it gets new credit, twice as much each
 * time, and an event is recorded behind what it has launched since. Else the queue is deep, and the process counts its
 * launches again, as under COUNT, so that the bound holds (vg_gate_wait_for_bound()). Such a program is limited by the
 * device and does not feel what a launch costs.
 *
 * Those of a process that measures when its work runs (work_runs.c) stay counted, else its slice would seem to use the
 * device all the time. It waits, or takes longer between its launches than they cost, so it does not feel that either.
 */
#include "gate/state.h"

#define CREDIT_LEAST 4
#define CREDIT_MOST 256
#define SHALLOW_NS (5 * VG_NS_PER_MS)
#define SHALLOW_FOR_NS (5 * VG_NS_PER_MS)

/* A definition does not take the model from the header. */
__thread int32_t vg_gate_credit __attribute__((tls_model("initial-exec")));

static void set_deep(struct vg_device *device, bool deep) {
  struct vg_gate_state *gate = device->gate;
  gate->deep = deep;
  gate->shallow_since_ns = 0;
  VG_STORE_RELAXED(&gate->solo_dirty, true);
  vg_gate_set_counted_word(device);
}

void vg_gate_give_credit(struct vg_work *work) {
  work->credit = work->credit ? 2 * work->credit : CREDIT_LEAST;
  if (work->credit > CREDIT_MOST) work->credit = CREDIT_MOST;
  vg_gate_credit = (int32_t)work->credit;
}

void vg_gate_begin_deep(struct vg_device *device) {
  pthread_mutex_lock(&device->gate->mutex);
  set_deep(device, true);
  pthread_mutex_unlock(&device->gate->mutex);
}

void vg_gate_review_solo(struct vg_device *device, uint64_t left_ns, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  if (!gate->deep || !vg_gate_is_alone(device) || gate->measures) return;
  if (left_ns >= SHALLOW_NS)
    gate->shallow_since_ns = 0;
  else if (!gate->shallow_since_ns)
    gate->shallow_since_ns = now_ns;
  else if (now_ns >= gate->shallow_since_ns + SHALLOW_FOR_NS)
    set_deep(device, false);
}
