/*
 * stream_wait.c - streams that wait for something that is no work of theirs: a host function, a value in memory, an
 * event of another stream, another interface, a copy. What is launched behind such a wait is outstanding, but does not
 * run, and a slice pays for what runs (DESIGN D18).
 *
 * A call after which a stream may wait puts a marker behind what was launched before it, and is counted for its stream.
 * The next launch there, by whichever thread, finds the count changed and puts another marker before itself, which ends
 * the wait: as long as it is the oldest marker of the stream and has not completed, the stream waits. What follows from
 * that is in waiting_work.c.
 *
 * Other streams wait, too: the legacy default stream for all blocking ones, and these for it.
 */
#include "context/context.h"
#include "gate/state.h"
#include "gate/stream_books.h"
#include "gen/abi/real.h"

bool vg_gate_is_captured(CUstream stream, bool per_thread) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&vg_gate_captures)) || stream == VG_GATE_ALL_STREAMS) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result =
      per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &status) : REAL(cuStreamIsCapturing)(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

#define QUEUED_FACTOR 4
#define PACE_LOOK_NS 500000ull
#define PACE_MOST_NS (20 * VG_NS_PER_MS) /* of one launch */

/* ---- counts of waits ---- */

static CUstream handle_of(CUstream stream, bool per_thread) {
  if (stream == CU_STREAM_LEGACY) return NULL;
  return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

/* Two streams with one hash get markers that they do not need. */
static size_t place_of(CUstream handle) {
  return ((uintptr_t)handle * 0x9E3779B97F4A7C15ull >> 40) % VG_WAIT_PLACES; /* 2^64 / golden ratio */
}

uint32_t vg_gate_wait_count(const struct vg_device *device, const struct vg_stream *stream) {
  const struct vg_waits *counts = &device->gate->wait_counts;
  if (vg_stream_is_legacy(stream)) return VG_LOAD_RELAXED(&counts->any_stream);
  CUstream handle = handle_of(stream->handle, stream->per_thread);
  uint32_t count = VG_LOAD_RELAXED(&counts->all_streams) + VG_LOAD_RELAXED(&counts->of[place_of(handle)]);
  return stream->blocking ? count + VG_LOAD_RELAXED(&counts->of[place_of(NULL)]) : count;
}

static void count(uint32_t *counter) {
  __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* ---- the call after which a stream may wait ---- */

/* Blocking streams wait for what the legacy one waits for: a marker that their work gets afterwards shows nothing of
 * when that ended. Those of other threads are left as they are. */
static bool is_meant(const struct vg_stream *stream, CUstream handle, CUcontext context) {
  if (!stream->used || stream->is_gone || stream->context != context) return false;
  if (handle == VG_GATE_ALL_STREAMS || (!handle && stream->blocking)) return true;
  return handle_of(stream->handle, stream->per_thread) == handle;
}

/* With the work's lock. `but`: a stream that is left as it is. */
static void mark_before_wait(struct vg_work *work, CUstream handle, CUcontext context, const struct vg_stream *but) {
  for (int i = 0; i < VG_WORK_STREAMS; i++) {
    struct vg_stream *stream = &work->streams[i];
    if (stream != but && is_meant(stream, handle, context)) vg_work_mark_before_wait(work, stream);
  }
}

void vg_gate_wait_before(CUstream stream, bool per_thread) {
  if (vg_gate_solo()) return;
  struct vg_device *device = vg_context_device();
  struct vg_work *work = device ? vg_gate_work_here(device) : NULL;
  if (!work || vg_gate_is_captured(stream, per_thread)) return;
  CUcontext context = vg_context_remembered();
  vg_work_lock(work);
  mark_before_wait(work, handle_of(stream, per_thread), context, NULL);
  vg_unlock(&work->lock);
}

/* Not in a stream that waits: its queue may be full, and this thread may be the one that ends its wait. */
void vg_gate_mark_before_sync(struct vg_device *device) {
  struct vg_work *work = vg_gate_work_here(device);
  CUcontext context = vg_context_remembered();
  if (!work || !vg_work_outstanding(work)) return;
  pthread_mutex_lock(&vg_gate_capture_mutex); /* none begins meanwhile */
  vg_work_lock(work);
  for (int i = 0; i < VG_WORK_STREAMS && !VG_LOAD_RELAXED(&vg_gate_captures); i++) {
    struct vg_stream *stream = &work->streams[i];
    bool is_marked = stream->used && !stream->is_gone && !stream->waits && stream->context == context;
    if (is_marked) vg_work_mark_before_wait(work, stream);
  }
  vg_unlock(&work->lock);
  pthread_mutex_unlock(&vg_gate_capture_mutex);
}

void vg_gate_wait_behind(CUstream stream, bool per_thread) {
  struct vg_device *device = vg_context_device();
  if (!device) return;
  struct vg_gate_state *gate = device->gate;
  CUstream handle = handle_of(stream, per_thread);
  count(handle == VG_GATE_ALL_STREAMS ? &gate->wait_counts.all_streams : &gate->wait_counts.of[place_of(handle)]);
  count(&gate->wait_counts.any_stream);
  if (vg_gate_solo()) return;
  struct vg_work *work = vg_gate_work_here(device), *first = VG_LOAD(&gate->works);
  if (work) {
    vg_work_lock(work);
    vg_work_open_tally(work, 0); /* the next launch takes the long path, which looks at the count */
    vg_unlock(&work->lock);
  }
  if (first && (first->next || first != work)) /* the same for other threads, which may use the stream, too */
    __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE);
}

/* Not asked while a stream of the process captures: the event may belong to the capture, which the query would end. */
bool vg_gate_is_event_over(CUevent event) {
  if (vg_gate_solo() || VG_LOAD_RELAXED(&vg_gate_captures)) return false;
  return vg_work_is_over(event);
}

/* ---- the next launch ---- */

static bool has_begun_to_wait(const struct vg_device *device, const struct vg_stream *stream) {
  return !stream->shared && stream->waits_seen != vg_gate_wait_count(device, stream);
}

bool vg_gate_is_behind_wait(const struct vg_ticket *ticket) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&ticket->device->gate->wait_counts.any_stream))) return false;
  vg_work_lock(ticket->work);
  const struct vg_stream *stream = vg_work_stream(ticket->work, ticket->stream, ticket->per_thread, ticket->line);
  bool behind = stream->waits || has_begun_to_wait(ticket->device, stream);
  vg_unlock(&ticket->work->lock);
  return behind;
}

/* 0: the launch may pass; else when to look again. */
static uint64_t next_look(const struct vg_ticket *ticket, uint64_t now_ns) {
  const struct vg_gate_state *gate = ticket->device->gate;
  vg_work_lock(ticket->work);
  struct vg_stream *stream = vg_work_stream(ticket->work, ticket->stream, ticket->per_thread, ticket->line);
  if (stream->waits) vg_work_reap_stream(ticket->work, stream, now_ns);
  uint64_t accepted_ns = VG_LOAD_RELAXED(&gate->accepted_ns);
  uint64_t since_ns = stream->moved_ns > accepted_ns ? stream->moved_ns : accepted_ns;
  uint64_t due_ns = since_ns + stream->cost_ns / QUEUED_FACTOR;
  bool paced = stream->waits && stream->stale && due_ns > now_ns;
  vg_unlock(&ticket->work->lock);
  if (!paced) return 0;
  return due_ns - now_ns < PACE_LOOK_NS ? due_ns : now_ns + PACE_LOOK_NS;
}

void vg_gate_pace_behind_wait(const struct vg_ticket *ticket) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&ticket->device->gate->waits)) || vg_gate_is_alone(ticket->device)) return;
  uint64_t now_ns = vg_prim_now_ns(), end_ns = now_ns + PACE_MOST_NS, due_ns;
  for (; now_ns < end_ns && (due_ns = next_look(ticket, now_ns)) != 0; now_ns = vg_prim_now_ns())
    vg_prim_sleep_until_ns(due_ns);
}

void vg_gate_mark_wait_end(const struct vg_ticket *ticket) {
  struct vg_waits *counts = &ticket->device->gate->wait_counts;
  if (VG_LIKELY(!vg_gate_may_wait(ticket->device))) return;
  vg_gate_begin_measuring(ticket->device);
  vg_work_lock(ticket->work);
  struct vg_stream *stream = vg_work_stream(ticket->work, ticket->stream, ticket->per_thread, ticket->line);
  if (!stream->cost_ns && stream->head == stream->tail) vg_stream_begin_run(stream, vg_prim_now_ns());
  if (has_begun_to_wait(ticket->device, stream)) {
    stream->waits_seen = vg_gate_wait_count(ticket->device, stream);
    if (vg_stream_is_legacy(stream)) mark_before_wait(ticket->work, NULL, stream->context, stream);
    vg_work_mark_wait_end(ticket->work, stream);
    if (vg_stream_is_legacy(stream)) count(&counts->of[place_of(NULL)]); /* blocking streams wait for this launch */
  }
  vg_unlock(&ticket->work->lock);
}
