/*
 * idle_probe.h - shows the helper thread that all work submitted to a device has completed, counted or not: an event
 * behind each context. Used under the gate's mutex.
 */
#ifndef VG_GATE_PROBE_H
#define VG_GATE_PROBE_H
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

#define VG_PROBE_CONTEXTS 8

/* One event per context behind everything that has been submitted to it, and when it completed: a second event, whose
 * completion is known on CLOCK_MONOTONIC, relates the device's clock to the host's. */
struct vg_probe {
  CUcontext context;
  CUevent event;
  CUevent reference;     /* NULL: none yet */
  CUevent spare;         /* replaces the event when that becomes the first reference */
  uint64_t reference_ns; /* when it completed, on CLOCK_MONOTONIC: the least that observations allow */
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
/* Has all work before the probes completed? Then *ret_done_ns is when, as well as that is known. calm: no neighbour
 * waits, so a moment may be spent on relating the device's clock to the host's. */
bool vg_probe_done(struct vg_probes *probes, const struct vg_device *device, bool calm, uint64_t *ret_done_ns);
void vg_probe_forget_context(struct vg_probes *probes, CUcontext context);

#endif
