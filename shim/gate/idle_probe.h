/*
 * idle_probe.h - the helper thread's way to see that everything has completed that was submitted to a device, however
 * it was: an event behind each context. Used under the gate's mutex.
 */
#ifndef VG_GATE_PROBE_H
#define VG_GATE_PROBE_H
#include "gate/gate.h"

#define VG_PROBE_CONTEXTS 8

/* One event per context behind everything that has been submitted to it, and when it completed: a second event whose
 * completion has been placed on CLOCK_MONOTONIC ties the device's clock to ours. */
struct vg_probe {
  CUcontext context;
  CUevent event;
  CUevent reference;     /* NULL: none yet */
  CUevent spare;         /* takes the event's place when that becomes the first reference */
  uint64_t reference_ns; /* when it completed, on CLOCK_MONOTONIC: the least of what observations allow */
  uint64_t made_ns;      /* when it became the reference */
  uint64_t observed_ns;  /* of the last observation */
  uint64_t done_ns;      /* when the last probe completed */
  bool pending;
};

struct vg_probes {
  struct vg_probe of[VG_PROBE_CONTEXTS];
  bool ask_streams; /* the driver has no probe of a context: ask its streams */
};

/* Records a probe in every context of the device. */
void vg_probe_start(struct vg_probes *probes, const struct vg_device *device);
/* Has everything before the probes completed? Then *ret_done_ns says when, as well as it is known. calm: nobody waits,
 * so a moment may be spent on tying the device's clock to ours. */
bool vg_probe_done(struct vg_probes *probes, const struct vg_device *device, bool calm, uint64_t *ret_done_ns);
void vg_probe_forget_context(struct vg_probes *probes, CUcontext context);

#endif
