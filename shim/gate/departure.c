/*
 * departure.c - the helper's part when the slice's memory leaves the device: the process leaves the driver, and the
 * helper with it, until the memory is back. In order: the gate is closed and drained as ever; no thread is within a
 * call (from then on none enters, see residence.c); a probe behind each context shows that all has completed that was
 * submitted before, copies as well. Under the gate's mutex.
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

uint64_t vg_departure_step(struct vg_device *device, uint32_t word, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  uint32_t residence = VG_LOAD(&VG_LOAD(&device->control)->residence);
  if (!residence || !is_drained(device, word)) return UINT64_MAX; /* the drain has its own next step */
  if (gate->quiet_residence != residence) {
    if (vg_gate_calls_under_way() || vg_gate_in_flight(device)) return next_look(gate, now_ns);
    gate->quiet_residence = residence;
    gate->departure_probed = vg_gate_start_probe(device);
  }
  uint64_t done_ns;
  if (gate->departure_probed && !vg_probe_done(&gate->probes, device, false, &done_ns)) return next_look(gate, now_ns);
  /* Without a probe (a stream captures, or the driver has none) nothing is said of what has been submitted. */
  bool completed = gate->departure_probed && !gate->probes.ask_streams;
  VG_STORE(&gate->completed_residence, completed ? residence : 0);
  VG_STORE(&VG_LOAD(&device->report)->left_word, residence);
  vg_report_changes(device);
  vg_prim_eventfd_ring(device->doorbell_fd);
  return UINT64_MAX;
}
