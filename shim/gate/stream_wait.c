/*
 * stream_wait.c - streams that wait for something that is no work of theirs: a host function, a value in memory, an
 * event of another stream, another interface, a copy. What is launched behind such a wait is outstanding, but does not
 * run, and a slice pays for what runs (DESIGN D18).
 *
 * A call after which a stream may wait puts a marker behind what was launched before it, and is counted for its stream.
 * The next launch there, by whichever thread, finds the count changed and puts another marker before itself, which ends
 * the wait: as long as it is the oldest marker of the stream and has not completed, the stream waits. While all streams
 * with work wait, no work counts as running; the helper looks now and then whether some runs again. What completes
 * before anybody looks is reported with its estimate (vg_gate_report_news).
 *
 * Other streams wait, too: the legacy default stream for all blocking ones, and these for it.
 */
#include "context/context.h"
#include "gate/state.h"
#include "gate/thread_work.h"
#include "gen/abi/real.h"

#define LOOK_LEAST_NS 200000ull
#define LOOK_MOST_NS 1000000ull
#define LOOK_PART 16 /* of the time for which work has waited */

bool vg_gate_is_captured(CUstream stream, bool per_thread) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&vg_gate_captures)) || stream == VG_GATE_ALL_STREAMS) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result =
      per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &status) : REAL(cuStreamIsCapturing)(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- counts of waits ---- */

static CUstream handle_of(CUstream stream, bool per_thread) {
  if (stream == CU_STREAM_LEGACY) return NULL;
  return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

/* Two streams with one hash get markers that they do not need. */
static size_t place_of(CUstream handle) {
  return ((uintptr_t)handle * 0x9E3779B97F4A7C15ull >> 40) % VG_WAIT_PLACES; /* 2^64 / golden ratio */
}

static bool is_legacy(const struct vg_stream *stream) {
  return !stream->owner && !handle_of(stream->handle, false);
}

uint32_t vg_gate_wait_count(const struct vg_device *device, const struct vg_stream *stream) {
  const struct vg_waits *counts = &device->gate->wait_counts;
  if (is_legacy(stream)) return VG_LOAD_RELAXED(&counts->any_stream);
  CUstream handle = handle_of(stream->handle, stream->per_thread);
  uint32_t count = VG_LOAD_RELAXED(&counts->all_streams) + VG_LOAD_RELAXED(&counts->of[place_of(handle)]);
  return stream->blocking ? count + VG_LOAD_RELAXED(&counts->of[place_of(NULL)]) : count;
}

static void count(uint32_t *counter) {
  __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* ---- the call after which a stream may wait ---- */

static bool is_meant(const struct vg_stream *stream, CUstream handle, CUcontext context) {
  if (!stream->used || stream->context != context) return false;
  return handle == VG_GATE_ALL_STREAMS || handle_of(stream->handle, stream->per_thread) == handle;
}

void vg_gate_wait_before(CUstream stream, bool per_thread) {
  if (vg_gate_solo()) return;
  struct vg_device *device = vg_context_device();
  struct vg_work *work = device ? vg_gate_work_here(device) : NULL;
  if (!work || vg_gate_is_captured(stream, per_thread)) return;
  CUcontext context = vg_context_remembered();
  vg_work_lock(work);
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (is_meant(&work->streams[i], handle_of(stream, per_thread), context))
      vg_work_mark_before_wait(work, &work->streams[i]);
  vg_unlock(&work->lock);
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

void vg_gate_mark_wait_end(const struct vg_ticket *ticket) {
  struct vg_waits *counts = &ticket->device->gate->wait_counts;
  if (VG_LIKELY(!VG_LOAD_RELAXED(&counts->any_stream))) return;
  vg_work_lock(ticket->work);
  struct vg_stream *stream = vg_work_stream(ticket->work, ticket->stream, ticket->per_thread, ticket->line);
  if (has_begun_to_wait(ticket->device, stream)) {
    stream->waits_seen = vg_gate_wait_count(ticket->device, stream);
    vg_work_mark_wait_end(ticket->work, stream);
    if (is_legacy(stream)) count(&counts->of[place_of(NULL)]); /* blocking streams wait for this launch */
  }
  vg_unlock(&ticket->work->lock);
}

void vg_gate_renew_waiting(struct vg_device *device) {
  device->gate->accepted_ns = vg_prim_now_ns();
  for (struct vg_work *work = device->gate->waits ? VG_LOAD(&device->gate->works) : NULL; work; work = work->next) {
    vg_work_lock(work);
    vg_work_renew_waiting(work);
    vg_unlock(&work->lock);
  }
}

void vg_gate_begin_waiting(struct vg_device *device) {
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  if (!gate->waits) gate->waits_since_ns = gate->waits_seen_ns = vg_prim_now_ns();
  gate->waits = true;
  vg_gate_wake_helper(device);
  pthread_mutex_unlock(&gate->mutex);
}

/* ---- while nothing else is left ---- */

bool vg_gate_rest(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  if (VG_LIKELY(!gate->waits) || !gate->busy.since_ns || VG_LOAD_RELAXED(&gate->solo_dirty)) return false;
  struct vg_work *locked;
  vg_gate_lock_all(device, &locked);
  bool rests = vg_gate_none_runs(device, locked);
  if (rests) {
    uint64_t ran_ns = 0;
    for (const struct vg_work *work = locked; work; work = work->next) vg_work_pending(work, &ran_ns);
    vg_gate_report_all(device, locked);
    vg_gate_become_idle(device, vg_gate_busy_end(device, 0, ran_ns, now_ns));
    gate->waits_since_ns = gate->waits_seen_ns = now_ns;
  }
  vg_gate_unlock_all(locked);
  if (rests && !vg_gate_give_up(device)) vg_gate_ring_edge(device);
  return rests;
}

uint64_t vg_gate_look_at_waiting(struct vg_device *device, uint64_t now_ns) {
  struct vg_gate_state *gate = device->gate;
  struct vg_work *locked;
  vg_gate_reap(device, now_ns);
  vg_gate_lock_all(device, &locked);
  bool runs = vg_gate_running(locked) != 0;
  vg_gate_unlock_all(locked);
  if (runs && !gate->busy.since_ns) {
    uint64_t begun_ns = now_ns - (now_ns - gate->waits_seen_ns) / 2; /* at some time since the last look */
    vg_gate_become_busy(device, begun_ns > gate->covered_ns ? begun_ns : gate->covered_ns);
    return 0;
  }
  gate->waits_seen_ns = now_ns;
  uint64_t pause_ns = (now_ns - gate->waits_since_ns) / LOOK_PART;
  if (pause_ns < LOOK_LEAST_NS) pause_ns = LOOK_LEAST_NS;
  return now_ns + (pause_ns < LOOK_MOST_NS ? pause_ns : LOOK_MOST_NS);
}
