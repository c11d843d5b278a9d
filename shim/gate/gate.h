/*
 * gate.h - the launch gate (DESIGN D5): decides when a launch may go to the driver, bounds the outstanding work, sees
 * when none is outstanding any more and reports that to the arbiter.
 *
 *   if (VG_LIKELY(vg_gate_solo_launch())) return real(...);    // alone on the device, or no slice: three loads
 *   struct vg_ticket ticket;
 *   vg_gate_enter(&ticket, stream, per_thread, function, grid_threads);   // waits; never under a lock of the shim
 *   CUresult result = real(...);
 *   return vg_gate_leave(&ticket, result);                     // counts, and records a marker now and then
 *
 * The helper thread (attach/helper_thread.c) calls vg_gate_service() when the daemon has woken it or its own deadline
 * has passed.
 */
#ifndef VG_GATE_H
#define VG_GATE_H
#include <stddef.h>

#include "gate/gate_fast.h"
#include "gen/abi/cuda_abi.h"

struct vg_gate_line;
struct vg_work;
struct vg_estimate;

struct vg_ticket {
  struct vg_device *device; /* NULL: not counted, and nothing else is set but here */
  struct vg_gate_line *line;
  struct vg_gate_line *here; /* of vg_residence_enter() */
  struct vg_work *work;
  struct vg_estimate *estimate;
  CUstream stream;
  CUevent timing_begin;
  uint64_t bound_ns;   /* on outstanding work, as of when the launch entered */
  uint64_t has_run_ns; /* of that work, if it reached the bound: the device has run so much of the oldest pieces */
  bool per_thread;
  bool counted; /* false: neither estimated nor marked */
  /* set by the caller between enter and leave */
  bool programmatic; /* the launch overlaps with the one before it */
  bool kernel;       /* a kernel of the program: in a gang it may be a collective */
};

/* The place of an event: everything launched into the stream up to begin is before it. */
struct vg_gate_point {
  struct vg_device *device; /* NULL: unknown */
  CUcontext context;
  CUstream stream;
  const void *owner; /* with per_thread: the thread's line */
  bool per_thread;
  uint64_t begin;
};

#define VG_GATE_ALL_STREAMS ((CUstream)UINTPTR_MAX) /* of the current context */

int vg_gate_attach(struct vg_device *device); /* at attach, before the first launch; 0 or -ENOMEM */

/* May a launch pass uncounted, with one device, several or none? */
static inline bool vg_gate_solo(void) {
  return vg_gate_solo_fast() || (VG_UNLIKELY(!VG_LOAD_RELAXED(&vg_gate_only_device)) && vg_gate_solo_slow());
}

static inline bool vg_gate_solo_launch(void) { /* the same for a launch, which uses up credit */
  if (VG_UNLIKELY(!VG_LOAD_RELAXED(&vg_gate_only_device))) return vg_gate_solo_launch_slow();
  return vg_gate_solo_fast() && vg_gate_solo_credit();
}

void vg_gate_enter(struct vg_ticket *ticket, CUstream stream, bool per_thread, const void *function, uint64_t threads);
CUresult vg_gate_leave(struct vg_ticket *ticket, CUresult result); /* returns the driver's result */
/* A new epoch begins: launches of threads that saw an older one are before it. 0: it does not matter. */
uint64_t vg_gate_epoch_begin(void);
/* Before a call that waits: the value to give to vg_gate_synced() afterwards. */
uint64_t vg_gate_sync_begin(void);
/* The program has waited for a stream (or, with all, for its whole context), which covers launches up to begin: reports
 * it when no work is outstanding any more. */
void vg_gate_synced(uint64_t begin, CUstream stream, bool per_thread, bool all);
/* The same for events: begin is of the epoch before the event was recorded, event_begin() comes before the call that
 * waits. */
void vg_gate_recorded(uint64_t begin, CUevent event, CUstream stream, bool per_thread);
void vg_gate_event_begin(CUevent event, struct vg_gate_point *ret_point);
void vg_gate_event_reached(const struct vg_gate_point *point);
/* Around a call after which the stream may wait for something that is no work of it (stream_wait.c). */
void vg_gate_wait_before(CUstream stream, bool per_thread);
void vg_gate_wait_behind(CUstream stream, bool per_thread);
bool vg_gate_is_event_over(CUevent event); /* then a stream that is to wait for it does not wait; false: or unknown */
/* Executable graphs with nodes that wait for something else (graph_work.c): what kernels they have besides. */
struct vg_graph_kernel {
  const void *function;
  uint64_t threads;
};
void vg_gate_graph_waits(CUgraphExec exec, const struct vg_graph_kernel *kernels, size_t count, uint64_t fill_ns);
bool vg_gate_does_graph_wait(CUgraphExec exec);
void vg_gate_graph_gone(CUgraphExec exec); /* or it does not wait any more */
/* Work of the helper thread. Returns when it is to be called again (CLOCK_MONOTONIC ns; UINT64_MAX: the helper is woken
 * when work begins). */
uint64_t vg_gate_service(uint64_t now_ns);
void vg_gate_daemon_gone(struct vg_device *device); /* by the helper thread: follow the mode of the site from here on */
void vg_gate_daemon_back(struct vg_device *device); /* by the helper thread, after the page pointers were swapped */
/* Where the pages are another daemon's: had the process left the driver under the one before? Then it stays so. */
bool vg_gate_has_left(const struct vg_device *device);
void vg_gate_daemon_changed(struct vg_device *device, bool has_left);
void vg_gate_stream_gone(CUstream stream);                              /* before the driver destroys it */
void vg_gate_context_gone(struct vg_device *device, CUcontext context); /* before the driver destroys it */
/* Collectives: their launches are counted on the devices of a gang (collectives.c). */
static inline bool vg_gate_gang_counts(const struct vg_device *device) { /* is it a gang's? */
  const struct vg_control_device *control = VG_LOAD(&device->control);
  return control && VG_LOAD_RELAXED(&control->watch) & VG_WATCH_GANG;
}
bool vg_gate_gang_is_collective(const void *function); /* CUfunction or CUkernel */
void vg_gate_gang_launched(struct vg_device *device, uint32_t collectives);
/* A stream begins or ends to capture: between the two the helper makes no driver calls. */
void vg_gate_capture_begin(void);
void vg_gate_capture_end(void);
void vg_gate_forked_child(void);

#endif
