/*
 * gate.h - the launch gate (DESIGN D5): decides when a launch may go to the driver, bounds what is outstanding, knows
 * when nothing is outstanding any more and tells the arbiter so.
 *
 *   if (VG_LIKELY(vg_gate_solo())) return real(...);          // alone on the device, or no slice at all: three loads
 *   struct vg_ticket ticket;
 *   vg_gate_enter(&ticket, stream, per_thread, function, grid_threads);   // waits; never under a lock of ours
 *   CUresult result = real(...);
 *   vg_gate_leave(&ticket, result);                            // counts, and records a marker now and then
 *
 * The helper thread (attach/attach.c) calls vg_gate_service() whenever the header's bell rang or its own deadline
 * passed.
 */
#ifndef VG_GATE_H
#define VG_GATE_H
#include <stddef.h>

#include "base/prim.h"
#include "gen/abi/cuda_abi.h"
#include "session/session.h"

#define VG_GATE_NO_WORD UINT32_MAX /* no gate word ever has this value: an open_word that accepts nothing */

struct vg_work;
struct vg_estimate;

struct vg_ticket {
  struct vg_device *device; /* NULL: not counted */
  struct vg_work *work;     /* NULL: neither estimated nor marked */
  struct vg_estimate *estimate;
  CUstream stream;
  CUevent timing_begin;
  bool per_thread;
  /* set by the caller between enter and leave */
  bool programmatic; /* the launch overlaps with the one before it */
  bool kernel;       /* of the program: in a gang it may be a collective */
};

/* Where an event stands: everything up to begin that was launched into the stream is before it. */
struct vg_gate_point {
  struct vg_device *device; /* NULL: not known */
  CUcontext context;
  CUstream stream;
  const void *owner; /* whose default stream, with per_thread */
  bool per_thread;
  uint64_t begin;
};

int vg_gate_attach(struct vg_device *device); /* at attach, before the first launch; 0 or -ENOMEM */

/* The device when there is just one, or NULL: several (see context/context.h) or none (no slice: everything passes). */
extern struct vg_device *vg_gate_only_device;
bool vg_gate_solo_elsewhere(void); /* the same question with several devices, or none */

static inline bool vg_gate_solo_device(const struct vg_device *device) {
  uint32_t word = VG_LOAD(VG_LOAD_RELAXED(&device->gate_word));
  return word == VG_LOAD_RELAXED(&device->open_word) && (word & VG_GATE_STATE_MASK) == VG_GATE_SOLO;
}

/* For a launch path that must not call anything before it jumps: false leaves the question open. */
static inline bool vg_gate_surely_solo(void) {
  const struct vg_device *device = VG_LOAD_RELAXED(&vg_gate_only_device);
  return VG_LIKELY(device != NULL) && vg_gate_solo_device(device);
}

/* What that has left open. */
static inline bool vg_gate_solo_after_all(void) {
  return VG_UNLIKELY(!VG_LOAD_RELAXED(&vg_gate_only_device)) && vg_gate_solo_elsewhere();
}

static inline bool vg_gate_solo(void) {
  return vg_gate_surely_solo() || vg_gate_solo_after_all();
}

void vg_gate_enter(struct vg_ticket *ticket, CUstream stream, bool per_thread, const void *function, uint64_t threads);
void vg_gate_leave(struct vg_ticket *ticket, CUresult result);
/* Before a call that waits: what vg_gate_synced() wants to know afterwards. */
uint64_t vg_gate_sync_begin(void);
/* The program has waited for a stream (or, with all, for its whole context), which covers what was launched up to
 * begin: notices when nothing is outstanding. */
void vg_gate_synced(uint64_t begin, CUstream stream, bool per_thread, bool all);
/* The same for events. begin is of before the event was recorded; event_begin comes before the call that waits. */
void vg_gate_recorded(uint64_t begin, CUevent event, CUstream stream, bool per_thread);
void vg_gate_event_begin(CUevent event, struct vg_gate_point *ret_point);
void vg_gate_event_reached(const struct vg_gate_point *point);
/* Work of the helper thread. Returns when it wants to be called again (CLOCK_MONOTONIC ns; UINT64_MAX: it is
 * woken when work begins). */
uint64_t vg_gate_service(uint64_t now_ns);
void vg_gate_daemon_gone(struct vg_device *device); /* by attach/attach.c: follow the mode of the site from here on */
void vg_gate_daemon_back(struct vg_device *device); /* by attach/attach.c, after the page pointers were swapped */
void vg_gate_context_gone(struct vg_device *device, CUcontext context); /* before the driver destroys it */
/* Collectives, launches of which are counted where devices are used together (collectives.c). */
static inline bool vg_gate_gang_counts(const struct vg_device *device) { /* is it one of those? */
  const struct vg_control_device *control = VG_LOAD(&device->control);
  return control && VG_LOAD_RELAXED(&control->watch) & VG_WATCH_GANG;
}
bool vg_gate_gang_is_collective(const void *function); /* CUfunction or CUkernel */
void vg_gate_gang_launched(struct vg_device *device, uint32_t collectives);
/* Some stream begins or ends to capture: our own driver calls rest meanwhile. */
void vg_gate_capture_begin(void);
void vg_gate_capture_end(void);
void vg_gate_forked_child(void);

#endif
