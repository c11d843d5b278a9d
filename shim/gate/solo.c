/*
 * solo.c - a slice that is alone: its launches pass uncounted, but only as long as the device keeps up with them. What
 * was launched cannot be taken back when another slice attaches, and uncounted work has no bound.
 *
 * A thread that has used up its credit of uncounted launches looks: has the device completed what the thread had
 * launched when it looked before? Then it gets new credit, twice as much each time, and an event is recorded behind
 * what it has launched since. Else the queue is deep, and from then on the process counts its launches, as under COUNT,
 * so that the bound holds. Such a program is limited by the device and does not feel what a launch costs. The helper
 * ends that when little has been outstanding for a while.
 */
#include "gate/state.h"

#define CREDIT_LEAST 16
#define CREDIT_MOST 256
#define SHALLOW_NS 500000ull
#define SHALLOW_LOOKS 50 /* of the helper, which are 0.2 to 1 ms apart */

/* A definition does not take the model from the header. */
__thread int32_t vg_gate_credit __attribute__((tls_model("initial-exec")));

static void set_deep(struct vg_device *device, bool deep) {
  struct vg_gate_state *gate = device->gate;
  gate->deep = deep;
  gate->shallow_looks = 0;
  VG_STORE_RELAXED(&gate->solo_dirty, true);
  vg_gate_set_counted_word(device);
}

void vg_gate_give_credit(struct vg_device *device, struct vg_work *work, bool keeps_up) {
  work->credit = keeps_up && work->credit ? 2 * work->credit : CREDIT_LEAST;
  if (work->credit > CREDIT_MOST) work->credit = CREDIT_MOST;
  vg_gate_credit = keeps_up ? (int32_t)work->credit : 0;
  if (keeps_up) return;
  pthread_mutex_lock(&device->gate->mutex);
  set_deep(device, true);
  pthread_mutex_unlock(&device->gate->mutex);
}

void vg_gate_review_solo(struct vg_device *device, uint64_t left_ns) {
  struct vg_gate_state *gate = device->gate;
  if (!gate->deep) return;
  gate->shallow_looks = left_ns < SHALLOW_NS ? gate->shallow_looks + 1 : 0;
  if (gate->shallow_looks >= SHALLOW_LOOKS) set_deep(device, false);
}
