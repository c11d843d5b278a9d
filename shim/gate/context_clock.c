/* context_clock.c - see context_clock.h. */
#include "gate/context_clock.h"

#include "base/prim.h"
#include "gate/event.h"
#include "gen/abi/real.h"

#define WATCH_NS (200 * VG_NS_PER_US)
#define AT_ONCE_NS 2000     /* the calls that record events do not all take as long */
#define LATE_MOST_NS 50000  /* more is no clock's fault: no event completed at once yet */
#define DRIFT_ALLOWED 10000 /* one part in: more than the event clock's own */

static bool watch(CUevent event, CUstream stream, uint64_t *ret_done_ns) {
  if (REAL(cuEventRecord)(event, stream) != CUDA_SUCCESS) return false;
  uint64_t limit_ns = vg_prim_now_ns() + WATCH_NS;
  CUresult result;
  do {
    result = REAL(cuEventQuery)(event);
    *ret_done_ns = vg_prim_now_ns();
  } while (result == CUDA_ERROR_NOT_READY && *ret_done_ns < limit_ns);
  return result == CUDA_SUCCESS;
}

void vg_context_clock_begin(struct vg_context_clock *clock, CUcontext context) {
  CUstream stream;
  CUevent event;
  CUstreamCaptureMode before = vg_event_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  pthread_mutex_lock(&clock->mutex);
  bool first = !clock->context;
  if (first) VG_STORE_RELAXED(&clock->context, context); /* tried once */
  if (first && REAL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    if (REAL(cuEventCreate)(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
      uint64_t done_ns;
      if (watch(event, stream, &done_ns))
        vg_event_clock_set(&clock->events, event, done_ns, done_ns);
      else
        REAL(cuEventDestroy_v2)(event);
    }
    REAL(cuStreamDestroy_v2)(stream);
  }
  pthread_mutex_unlock(&clock->mutex);
  vg_event_mode(before);
}

uint64_t vg_context_clock_read(struct vg_context_clock *clock, CUcontext context, CUevent event) {
  pthread_mutex_lock(&clock->mutex);
  /* A time from before the event was seen would set the clock back by as long as this thread had no processor since. */
  uint64_t at_ns = clock->context == context ? vg_event_clock_read(&clock->events, event, vg_prim_now_ns()) : 0;
  bool is_late = clock->compared_ns && clock->least_late_ns > 0 && clock->least_late_ns < LATE_MOST_NS;
  if (at_ns && is_late) at_ns -= (uint64_t)clock->least_late_ns;
  pthread_mutex_unlock(&clock->mutex);
  return at_ns;
}

bool vg_context_clock_is_at_once(struct vg_context_clock *clock, CUcontext context, CUevent event, uint64_t begin_ns,
                                 uint64_t end_ns) {
  pthread_mutex_lock(&clock->mutex);
  uint64_t now_ns = vg_prim_now_ns();
  uint64_t at_ns = clock->context == context ? vg_event_clock_read(&clock->events, event, now_ns) : 0;
  int64_t late_ns = (int64_t)(at_ns - begin_ns), least_ns = clock->least_late_ns;
  if (at_ns) {
    least_ns += (int64_t)((now_ns - clock->compared_ns) / DRIFT_ALLOWED);
    if (!clock->compared_ns || late_ns < least_ns) least_ns = late_ns;
    clock->least_late_ns = least_ns;
    clock->compared_ns = now_ns;
  }
  pthread_mutex_unlock(&clock->mutex);
  return at_ns && late_ns <= least_ns + (int64_t)(end_ns - begin_ns) + AT_ONCE_NS;
}

CUevent vg_context_clock_renew(struct vg_context_clock *clock, CUcontext context, CUevent event, uint64_t at_ns,
                               uint64_t now_ns) {
  pthread_mutex_lock(&clock->mutex);
  if (clock->context == context && vg_event_clock_is_old(&clock->events, now_ns)) {
    bool first = !clock->events.reference; /* it completed no later than now */
    event = vg_event_clock_set(&clock->events, event, first ? now_ns : at_ns, now_ns);
    clock->compared_ns = 0;
  }
  pthread_mutex_unlock(&clock->mutex);
  return event;
}

void vg_context_clock_forget(struct vg_context_clock *clock, CUcontext context) {
  pthread_mutex_lock(&clock->mutex);
  if (clock->context == context) {
    VG_STORE_RELAXED(&clock->context, NULL);
    clock->events = (struct vg_event_clock){0};
    clock->compared_ns = 0;
  }
  pthread_mutex_unlock(&clock->mutex);
}
