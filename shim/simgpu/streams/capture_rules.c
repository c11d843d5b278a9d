/*
 * capture_rules.c - the captures that are going on, and which calls do not go with them (programming guide, "Stream
 * Capture"): such a call is refused, and ends the capture. Called by every entry point that gives work to a stream,
 * waits or allocates; knows nothing of graphs.
 */
#include "simgpu/streams/capture_rules.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct sim_capture *sim_captures;
static uint32_t capture_count;
static const struct sim_capture_work *capture_work;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void sim_capture_lock(void) {
  pthread_mutex_lock(&lock);
}

void sim_capture_unlock(void) {
  pthread_mutex_unlock(&lock);
}

void sim_capture_set_work(const struct sim_capture_work *work) {
  VG_STORE(&capture_work, work);
}

const struct sim_capture_work *sim_capture_work(void) {
  return VG_LOAD(&capture_work);
}

void sim_capture_list(struct sim_capture *capture) {
  capture->next = sim_captures;
  sim_captures = capture;
  VG_STORE(&capture_count, capture_count + 1);
}

void sim_capture_unlist(struct sim_capture *capture) {
  for (struct sim_capture **at = &sim_captures; *at != NULL; at = &(*at)->next) {
    if (*at != capture) continue;
    *at = capture->next;
    VG_STORE(&capture_count, capture_count - 1);
    break;
  }
}

static bool is_legacy(const struct sim_stream *stream) {
  return stream == &stream->context->legacy;
}

SIM_PUBLIC CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  if (mode == NULL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

/* Ends the captures that a call breaks; returns what the call answers. */
static CUresult invalidate(bool (*breaks)(const struct sim_capture *, const struct sim_stream *),
                           const struct sim_stream *stream, CUresult code) {
  CUresult result = CUDA_SUCCESS;
  sim_capture_lock();
  for (struct sim_capture *c = sim_captures; c != NULL; c = c->next) {
    if (!breaks(c, stream)) continue;
    c->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    result = code;
  }
  sim_capture_unlock();
  return result;
}

static bool breaks_thread(const struct sim_capture *capture, const struct sim_stream *stream) {
  (void)stream;
  bool own = pthread_equal(capture->thread, pthread_self());
  if (own) return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static bool breaks_stream(const struct sim_capture *capture, const struct sim_stream *stream) {
  const struct sim_tail *tail = stream->capture;
  return tail != NULL && tail->capture == capture;
}

static bool breaks_context(const struct sim_capture *capture, const struct sim_stream *legacy) {
  for (const struct sim_tail *t = capture->tails; t != NULL; t = t->next)
    if (t->stream != NULL && t->stream->context == legacy->context) return true;
  return false;
}

static bool breaks_legacy(const struct sim_capture *capture, const struct sim_stream *legacy) {
  for (const struct sim_tail *t = capture->tails; t != NULL; t = t->next)
    if (t->stream != NULL && t->stream->context == legacy->context && (t->stream->flags & CU_STREAM_NON_BLOCKING) == 0)
      return true;
  return false;
}

CUresult sim_capture_unsafe(void) {
  if (VG_LIKELY(VG_LOAD_RELAXED(&capture_count) == 0) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_SUCCESS;
  return invalidate(breaks_thread, NULL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult sim_capture_implicit(struct sim_stream *stream) {
  if (VG_LIKELY(VG_LOAD_RELAXED(&capture_count) == 0) || !is_legacy(stream)) return CUDA_SUCCESS;
  return invalidate(breaks_legacy, stream, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult sim_capture_stream_unsafe(struct sim_stream *stream) {
  if (stream->capture == NULL) return sim_capture_implicit(stream);
  return invalidate(breaks_stream, stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult sim_capture_context(struct sim_context *context) {
  if (VG_LIKELY(VG_LOAD_RELAXED(&capture_count) == 0)) return CUDA_SUCCESS;
  return invalidate(breaks_context, &context->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool sim_capture_has_legacy(const struct sim_stream *stream) {
  bool found = false;
  if (VG_LIKELY(VG_LOAD_RELAXED(&capture_count) == 0) || !is_legacy(stream)) return false;
  sim_capture_lock();
  for (const struct sim_capture *c = sim_captures; c != NULL && !found; c = c->next) found = breaks_legacy(c, stream);
  sim_capture_unlock();
  return found;
}
