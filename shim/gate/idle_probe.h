/*
 * idle_probe.h - shows the helper thread that all work submitted to a device has completed, counted or not: an event
 * behind each context. Used under the gate's mutex.
 */
#ifndef VG_GATE_PROBE_H
#define VG_GATE_PROBE_H
#include "gate/event_clock.h"
#include "session/session.h"

#define VG_PROBE_CONTEXTS 8

/* One event per context behind everything that has been submitted to it, and when it completed. */
struct vg_probe {
  CUcontext context;
  CUevent event;
  CUevent spare; /* replaces the event when that becomes the first reference */
  struct vg_event_clock clock;
  uint64_t done_ns; /* when the last probe completed */
  bool pending;
};

struct vg_probes {
  struct vg_probe of[VG_PROBE_CONTEXTS];
  bool ask_streams; /* the driver has no probe of a context: ask its streams */
};

/* Records a probe in every context of the device. False: a stream captures, which an event behind its context would
 * end, and nothing was done. */
bool vg_probe_start(struct vg_device *device);
void vg_probe_relax_captures(void); /* the calling thread may look at events beside captures from now on */
/* Has all work before the probes completed? Then *ret_done_ns is when, as well as that is known. calm: no neighbour
 * waits, so a moment may be spent on relating the device's clock to the host's. */
bool vg_probe_done(struct vg_probes *probes, const struct vg_device *device, bool calm, uint64_t *ret_done_ns);
void vg_probe_forget_context(struct vg_probes *probes, CUcontext context);

#endif
