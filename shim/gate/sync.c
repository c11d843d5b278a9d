/*
 * sync.c - the program waits for a stream, for its context or for an event, or queries it: the work that it has waited
 * for is not outstanding any more, and when none is, that is reported to the arbiter at once.
 *
 * A wait covers the launches before it began; for an event, before it was recorded. Events are in a small table in
 * which later ones replace others: without an entry the helper sees a moment later that no work is outstanding.
 */
#include "context/context.h"
#include "gate/state.h"

#define EVENTS 1024 /* a power of two */

static struct {
  CUevent event;
  struct vg_gate_point point;
} events[EVENTS];
static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;

/* When the thread's last wait began. */
static __thread uint64_t wait_begin_ns __attribute__((tls_model("initial-exec")));

/* A marker shows when what the thread has launched ends, however long the wait takes. */
static void begin_wait(struct vg_device *device) {
  wait_begin_ns = vg_prim_now_ns();
  if (device && VG_UNLIKELY(VG_LOAD_RELAXED(&device->gate->measures))) vg_gate_mark_before_sync(device);
}

uint64_t vg_gate_epoch_begin(void) {
  if (vg_gate_solo()) return 0;
  struct vg_device *device = vg_context_device();
  return device ? __atomic_add_fetch(&device->epoch, 1, __ATOMIC_ACQ_REL) : 0;
}

uint64_t vg_gate_sync_begin(void) {
  if (vg_gate_solo()) return 0;
  begin_wait(vg_context_device());
  return vg_gate_epoch_begin();
}

static struct vg_gate_point point_of(uint64_t begin, CUstream stream, bool per_thread) {
  struct vg_gate_point point = {.begin = begin, .stream = stream};
  point.device = begin ? vg_context_device() : NULL;
  point.per_thread = stream == CU_STREAM_PER_THREAD || (per_thread && !stream);
  if (point.per_thread) point.owner = vg_gate_own_line;
  if (point.device) point.context = vg_context_remembered();
  return point;
}

static bool covers(const struct vg_gate_point *point, bool all, const struct vg_stream *stream) {
  if (stream->shared || stream->context != point->context || stream->last_epoch >= point->begin) return false;
  return all || (stream->handle == point->stream && stream->per_thread == point->per_thread &&
                 (!point->per_thread || stream->owner == point->owner));
}

static void clear_covered(const struct vg_gate_point *point, bool all, struct vg_work *locked, uint64_t now_ns) {
  for (struct vg_work *work = locked; work; work = work->next)
    for (int i = 0; i < VG_WORK_STREAMS; i++) {
      struct vg_stream *stream = &work->streams[i];
      if (stream->used && covers(point, all, stream)) vg_work_clear_stream(work, stream, now_ns, false);
    }
}

/* Before the wait, which is over: then the device may have been at work all the time. */
static bool had_gaps(const struct vg_gate_state *gate) {
  if (gate->measures || wait_begin_ns < gate->busy.since_ns || VG_LOAD_RELAXED(&vg_gate_captures)) return false;
  return vg_work_has_gaps(wait_begin_ns - gate->busy.since_ns, gate->span_done_ns);
}

static void reached(const struct vg_gate_point *point, bool all) {
  struct vg_device *device = point->device;
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  pthread_mutex_lock(&gate->mutex);
  vg_gate_lock_all(device, &locked);
  clear_covered(point, all, locked, vg_prim_now_ns());
  vg_gate_report_all(device, locked);
  bool idle = !VG_LOAD_RELAXED(&gate->solo_dirty) && vg_gate_none_runs(device, locked);
  bool measures = idle && gate->busy.since_ns && had_gaps(gate) && point->context == vg_context_remembered();
  bool edge = idle && vg_gate_become_idle(device, vg_prim_now_ns());
  bool rang = idle && vg_gate_give_up(device);
  vg_gate_unlock_all(locked);
  if (edge && !rang) vg_gate_ring_edge(device);
  pthread_mutex_unlock(&gate->mutex);
  if (measures) vg_gate_begin_measuring(device);
}

void vg_gate_synced(uint64_t begin, CUstream stream, bool per_thread, bool all) {
  if (!begin) return;
  struct vg_gate_point point = point_of(begin, stream, per_thread);
  if (point.device) reached(&point, all);
}

/* ---- events ---- */

static size_t place_of(CUevent event) {
  return ((uintptr_t)event * 0x9E3779B97F4A7C15ull >> 40) % EVENTS;
}

void vg_gate_recorded(uint64_t begin, CUevent event, CUstream stream, bool per_thread) {
  if (!begin) return;
  struct vg_gate_point point = point_of(begin, stream, per_thread);
  if (VG_LOAD_RELAXED(&vg_gate_captures)) point.device = NULL; /* it may be in a graph now */
  size_t place = place_of(event);
  pthread_mutex_lock(&events_mutex);
  events[place].event = event;
  events[place].point = point;
  pthread_mutex_unlock(&events_mutex);
}

void vg_gate_event_begin(CUevent event, struct vg_gate_point *ret_point) {
  ret_point->device = NULL;
  if (vg_gate_solo()) return;
  begin_wait(vg_context_device());
  size_t place = place_of(event);
  pthread_mutex_lock(&events_mutex);
  if (events[place].event == event) *ret_point = events[place].point;
  pthread_mutex_unlock(&events_mutex);
}

void vg_gate_event_reached(const struct vg_gate_point *point) {
  if (point->device) reached(point, false);
}

void vg_gate_sync_forked_child(void) {
  pthread_mutex_init(&events_mutex, NULL);
  for (int i = 0; i < EVENTS; i++) events[i].event = NULL;
}
