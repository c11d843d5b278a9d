/* idle_probe.c - see idle_probe.h. */
#include "context/context.h"
#include "gate/state.h"
#include "gen/abi/real.h"

#define WATCH_NS 100000ull

static struct vg_probe *probe_of(struct vg_probes *probes, CUcontext context) {
  struct vg_probe *unused = NULL;
  for (int i = 0; i < VG_PROBE_CONTEXTS; i++) {
    if (probes->of[i].context == context) return &probes->of[i];
    if (!probes->of[i].context && !unused) unused = &probes->of[i];
  }
  if (!unused) return NULL;
  if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return NULL;
  CUevent pair[2] = {NULL, NULL};
  bool made = REAL(cuEventCreate)(&pair[0], CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
              REAL(cuEventCreate)(&pair[1], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
  if (!made && pair[0]) REAL(cuEventDestroy_v2)(pair[0]);
  CUcontext popped;
  REAL(cuCtxPopCurrent_v2)(&popped);
  if (!made) return NULL;
  *unused = (struct vg_probe){.context = context, .event = pair[0], .spare = pair[1]};
  return unused;
}

void vg_probe_relax_captures(void) {
  /* Only the helper thread calls this, but a forked child has another one. */
  static __thread bool relaxed __attribute__((tls_model("initial-exec")));
  if (relaxed) return;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  relaxed = REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
}

static void record(struct vg_probes *probes, const struct vg_device *device) {
  CUcontext contexts[VG_PROBE_CONTEXTS];
  vg_context_lock();
  int count = vg_context_list(device, contexts, VG_PROBE_CONTEXTS);
  probes->ask_streams = !HAVE(cuCtxRecordEvent) || count > VG_PROBE_CONTEXTS;
  for (int i = 0; i < count && i < VG_PROBE_CONTEXTS; i++) {
    struct vg_probe *probe = HAVE(cuCtxRecordEvent) ? probe_of(probes, contexts[i]) : NULL;
    if (probe) probe->pending = REAL(cuCtxRecordEvent)(contexts[i], probe->event) == CUDA_SUCCESS;
    probes->ask_streams |= !probe || !probe->pending;
  }
  vg_context_unlock();
}

bool vg_probe_start(struct vg_device *device) {
  pthread_mutex_lock(&vg_gate_capture_mutex);
  bool allowed = !VG_LOAD(&vg_gate_captures);
  if (allowed) {
    vg_probe_relax_captures();
    device->gate->probed_ns = vg_prim_now_ns();
    record(&device->gate->probes, device);
  }
  pthread_mutex_unlock(&vg_gate_capture_mutex);
  return allowed;
}

/* Drivers before 12.5 have no event behind a whole context: asks the streams that have been launched into, and the
 * legacy default stream, which is ordered behind uncounted launches unless their streams are non-blocking. */
static bool streams_of_done(const struct vg_work *work) {
  bool done = true;
  for (int i = 0; done && i < VG_WORK_STREAMS; i++) {
    const struct vg_stream *stream = &work->streams[i];
    if (!stream->used || stream->per_thread || stream->is_gone) continue;
    if (REAL(cuCtxPushCurrent_v2)(stream->context) != CUDA_SUCCESS) continue;
    CUcontext popped;
    done = REAL(cuStreamQuery)(stream->handle) != CUDA_ERROR_NOT_READY &&
           REAL(cuStreamQuery)(NULL) != CUDA_ERROR_NOT_READY;
    REAL(cuCtxPopCurrent_v2)(&popped);
  }
  return done;
}

static bool streams_done(const struct vg_device *device) {
  pthread_mutex_lock(&vg_gate_capture_mutex); /* the query would invalidate a capture */
  bool done = !VG_LOAD(&vg_gate_captures);
  for (struct vg_work *work = VG_LOAD(&device->gate->works); done && work; work = work->next) {
    vg_work_lock(work);
    done = streams_of_done(work);
    vg_unlock(&work->lock);
  }
  pthread_mutex_unlock(&vg_gate_capture_mutex);
  return done;
}

static void set_reference(struct vg_probe *probe, CUevent *event, uint64_t done_ns, uint64_t now_ns) {
  CUevent before = vg_event_clock_set(&probe->clock, *event, done_ns, now_ns);
  *event = before ? before : probe->spare;
  probe->spare = NULL;
}

/* The best reference is an event that completes while it is polled: tried for a moment when no neighbour waits. */
static bool watch_reference(struct vg_probe *probe) {
  CUevent event = NULL;
  if (REAL(cuCtxPushCurrent_v2)(probe->context) != CUDA_SUCCESS) return false;
  CUresult result = REAL(cuEventCreate)(&event, CU_EVENT_DEFAULT);
  CUcontext popped;
  REAL(cuCtxPopCurrent_v2)(&popped);
  if (result != CUDA_SUCCESS) return false;
  uint64_t now_ns = 0, limit_ns = vg_prim_now_ns() + WATCH_NS;
  pthread_mutex_lock(&vg_gate_capture_mutex); /* the event would end a capture in this context */
  if (VG_LOAD(&vg_gate_captures) || REAL(cuCtxRecordEvent)(probe->context, event) != CUDA_SUCCESS)
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_unlock(&vg_gate_capture_mutex);
  if (result == CUDA_SUCCESS) {
    do {
      result = REAL(cuEventQuery)(event);
      now_ns = vg_prim_now_ns();
    } while (result == CUDA_ERROR_NOT_READY && now_ns < limit_ns);
    if (result == CUDA_SUCCESS) set_reference(probe, &event, now_ns, now_ns);
  }
  if (event) REAL(cuEventDestroy_v2)(event);
  return result == CUDA_SUCCESS;
}

/* When a probe that has just been seen complete did complete. */
static uint64_t completed_at(struct vg_probe *probe, uint64_t now_ns, bool calm) {
  uint64_t done_ns = vg_event_clock_read(&probe->clock, probe->event, now_ns);
  bool due = !done_ns || vg_event_clock_is_old(&probe->clock, now_ns);
  if (!done_ns) done_ns = now_ns;
  if (due && !(calm && watch_reference(probe))) set_reference(probe, &probe->event, done_ns, now_ns);
  return done_ns;
}

bool vg_probe_done(struct vg_probes *probes, const struct vg_device *device, bool calm, uint64_t *ret_done_ns) {
  uint64_t last_ns = 0;
  for (int i = 0; i < VG_PROBE_CONTEXTS; i++) {
    struct vg_probe *probe = &probes->of[i];
    if (!probe->pending) {
      if (probe->done_ns > last_ns) last_ns = probe->done_ns;
      continue;
    }
    if (REAL(cuEventQuery)(probe->event) == CUDA_ERROR_NOT_READY) return false;
    probe->pending = false;
    probe->done_ns = completed_at(probe, vg_prim_now_ns(), calm);
    if (probe->done_ns > last_ns) last_ns = probe->done_ns;
  }
  if (probes->ask_streams && !streams_done(device)) return false;
  *ret_done_ns = last_ns && !probes->ask_streams ? last_ns : vg_prim_now_ns();
  return true;
}

void vg_probe_forget_context(struct vg_probes *probes, CUcontext context) {
  for (int i = 0; i < VG_PROBE_CONTEXTS; i++)
    if (probes->of[i].context == context) probes->of[i] = (struct vg_probe){0};
}
