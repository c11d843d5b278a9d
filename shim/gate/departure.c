/*
 * departure.c - the helper's part when the slice's memory leaves the device: the process leaves the driver, and the
 * helper with it, until the memory is back. Under the gate's mutex. In order:
 *
 * 1. The gate is drained as ever.
 * 2. No thread is within a call, but for polls. From then on nothing is submitted: none enters, see residence.c.
 * 3. A probe behind each context shows that all has completed, copies as well. Until then polls still ask the driver.
 * 4. The process is quiet: polls are answered, and those that had begun to ask have ended.
 */
#include "gate/state.h"

#define LOOK_LEAST_NS 200000ull
#define LOOK_MOST_NS (5 * VG_NS_PER_MS)

bool vg_departure_is_over(const struct vg_device *device) {
  uint32_t residence = VG_LOAD(&VG_LOAD(&device->control)->residence);
  return residence && VG_LOAD_RELAXED(&VG_LOAD(&device->report)->left_word) == residence;
}

static bool is_drained(const struct vg_device *device, uint32_t word) {
  const struct vg_gate_state *gate = device->gate;
  return VG_LOAD_RELAXED(&VG_LOAD(&device->report)->drained_word) == word && !gate->busy.since_ns && !gate->waits;
}

/* The longer it takes, the less often: a thread may be within a call that lasts. */
static uint64_t next_look(const struct vg_gate_state *gate, uint64_t now_ns) {
  uint64_t pause_ns = (now_ns - gate->drain_begun_ns) / 8;
  if (pause_ns < LOOK_LEAST_NS) pause_ns = LOOK_LEAST_NS;
  return now_ns + (pause_ns < LOOK_MOST_NS ? pause_ns : LOOK_MOST_NS);
}

static bool has_submitted_all(struct vg_device *device, uint32_t residence) {
  struct vg_gate_state *gate = device->gate;
  if (gate->submitted_residence == residence) return true;
  if (vg_gate_calls_under_way(false) || vg_gate_in_flight(device)) return false;
  gate->submitted_residence = residence;
  gate->departure_probed = vg_probe_start(device);
  return true;
}

/* Without a probe (a stream captures, or the driver has none) nothing is known of what has been submitted; nor of what
 * other processes have, whose events this one may ask for. */
static void make_quiet(struct vg_gate_state *gate, uint32_t residence) {
  bool completed = gate->departure_probed && !gate->probes.ask_streams && !VG_LOAD(&vg_residence_shared);
  VG_STORE(&gate->completed_residence, completed ? residence : 0);
  VG_STORE(&gate->quiet_residence, residence);
}

uint64_t vg_departure_step(struct vg_device *device, uint32_t word, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  uint32_t residence = VG_LOAD(&VG_LOAD(&device->control)->residence);
  uint64_t done_ns;
  if (!residence || !is_drained(device, word)) return UINT64_MAX; /* the drain has its own next step */
  if (!has_submitted_all(device, residence)) return next_look(gate, now_ns);
  if (VG_LOAD(&gate->quiet_residence) != residence) {
    bool probes = gate->departure_probed;
    if (probes && !vg_probe_done(&gate->probes, device, false, &done_ns)) return next_look(gate, now_ns);
    make_quiet(gate, residence);
  }
  if (vg_gate_calls_under_way(true)) return next_look(gate, now_ns);
  VG_STORE(&VG_LOAD(&device->report)->left_word, residence);
  vg_report_changes(device);
  vg_prim_eventfd_ring(device->doorbell_fd);
  return UINT64_MAX;
}

void vg_gate_carry_departure(struct vg_device *device, const struct vg_control_device *control,
                             struct vg_report_device *report) {
  struct vg_gate_state *gate = device->gate;
  const struct vg_control_device *before = VG_LOAD(&device->control);
  uint32_t from = before ? VG_LOAD(&before->residence) : 0, to = VG_LOAD(&control->residence);
  if (!gate || !from || !to) return;
  pthread_mutex_lock(&gate->mutex);
  if (gate->quiet_residence == from) {
    bool completed = gate->completed_residence == from;
    gate->submitted_residence = to;
    VG_STORE(&gate->carried_residence, from); /* threads see the old page for a moment yet */
    VG_STORE(&gate->completed_residence, completed ? to : 0);
    VG_STORE(&gate->quiet_residence, to);
    if (VG_LOAD_RELAXED(&VG_LOAD(&device->report)->left_word) == from) VG_STORE(&report->left_word, to);
  }
  pthread_mutex_unlock(&gate->mutex);
}
