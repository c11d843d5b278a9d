/*
 * stream.c - streams: making, finding (legacy and per-thread default streams included), asking, ending. A stream has a
 * slot in the completion area; a slot goes to a new stream only when everything given to the old one is done.
 */
#include "simgpu/streams/stream.h"
#include "simgpu/base/slab.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include <pthread.h>
#include <string.h>

#define PRIORITY_LEAST 0
#define PRIORITY_GREATEST (-5)
#define THREAD_STREAMS 8

static struct sim_slab streams = SIM_SLAB(sizeof(struct sim_stream), SIM_STREAMS_MAX * 4);
static uint32_t free_slots[SIM_STREAMS_MAX]; /* a queue, so that slots rest before they are used again */
static uint32_t free_first, free_count, slots_used;

static __thread struct thread_stream {
  uint64_t context_id; /* 0: free */
  struct sim_stream *stream;
} thread_streams[THREAD_STREAMS];
static pthread_key_t thread_key; /* its destructor gives the thread's streams back */
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

uint32_t sim_slot_take(void) {
  uint32_t slot = UINT32_MAX;
  sim_lock();
  if (slots_used < SIM_STREAMS_MAX && free_count < 64) {
    slot = slots_used++;
  } else if (free_count > 0) {
    slot = free_slots[free_first++ % SIM_STREAMS_MAX];
    free_count--;
  }
  sim_unlock();
  return slot;
}

void sim_slot_give(uint32_t slot) {
  sim_lock();
  free_slots[(free_first + free_count++) % SIM_STREAMS_MAX] = slot;
  sim_unlock();
}

void sim_stream_init(struct sim_stream *stream, struct sim_context *context, uint32_t slot) {
  stream->object.magic = SIM_STREAM_MAGIC;
  stream->slot = slot;
  stream->context = context->home;
  stream->green = context->home == context ? NULL : context;
  stream->object.inner = stream == &context->legacy;
  stream->id = sim_next_id();
  sim_point_wait(sim_stream_point(stream)); /* of the slot's former stream */
  sim_stream_open(stream);
  if (context->entry.seq) sim_submit_wait(stream, context->entry);
}

CUresult sim_stream_make(struct sim_context *context, unsigned flags, int priority, struct sim_stream **ret_stream) {
  uint32_t slot = sim_slot_take();
  struct sim_stream *stream = slot == UINT32_MAX ? NULL : sim_slab_get(&streams, SIM_STREAM_MAGIC);
  if (!stream) {
    if (slot != UINT32_MAX) sim_slot_give(slot);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  stream->flags = flags;
  stream->priority = priority > PRIORITY_LEAST      ? PRIORITY_LEAST
                     : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST
                                                    : priority;
  sim_stream_init(stream, context, slot);
  sim_lock();
  stream->next = context->home->streams;
  context->home->streams = stream;
  sim_unlock();
  *ret_stream = stream;
  return CUDA_SUCCESS;
}

static void stream_free(struct sim_stream *stream) {
  sim_slot_give(stream->slot);
  sim_slab_put(&streams, stream);
}

/* Out of its context's list, if the context is still there (else its streams are freed already). */
static void thread_stream_end(struct thread_stream *ended) {
  struct sim_stream *stream = sim_slab_live(&streams, ended->stream, SIM_STREAM_MAGIC);
  const struct sim_context *owner = !stream || stream->orphan ? NULL : stream->green ? stream->green : stream->context;
  bool mine = owner && stream->object.inner && owner->id == ended->context_id;
  ended->context_id = 0;
  if (!mine) return;
  sim_lock();
  struct sim_stream **link = &stream->context->streams;
  while (*link && *link != stream) link = &(*link)->next;
  mine = *link == stream;
  if (mine) *link = stream->next;
  sim_unlock();
  if (!mine) return;
  sim_submit_leave(stream);
  stream_free(stream);
}

static void thread_end(void *unused) {
  (void)unused;
  if (sim_started() != CUDA_SUCCESS) return; /* a forked child */
  for (int i = 0; i < THREAD_STREAMS; i++)
    if (thread_streams[i].context_id) thread_stream_end(&thread_streams[i]);
}

static void thread_key_make(void) {
  pthread_key_create(&thread_key, thread_end);
}

static CUresult per_thread(struct sim_context *context, struct sim_stream **ret_stream) {
  struct thread_stream *place = &thread_streams[0]; /* of more contexts than places one loses its stream */
  for (int i = THREAD_STREAMS - 1; i >= 0; i--) {
    if (thread_streams[i].context_id == 0) place = &thread_streams[i];
    if (thread_streams[i].context_id != context->id) continue;
    *ret_stream = thread_streams[i].stream;
    return CUDA_SUCCESS;
  }
  if (place->context_id) thread_stream_end(place);
  CUresult result = sim_stream_make(context, CU_STREAM_DEFAULT, 0, &place->stream);
  if (result != CUDA_SUCCESS) return result;
  pthread_once(&thread_key_once, thread_key_make);
  pthread_setspecific(thread_key, thread_streams);
  place->stream->object.inner = true;
  place->context_id = context->id;
  *ret_stream = place->stream;
  return CUDA_SUCCESS;
}

CUresult sim_stream_find(CUstream handle, bool is_per_thread, struct sim_stream **ret_stream) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (VG_UNLIKELY(result != CUDA_SUCCESS)) return result;
  if (handle == CU_STREAM_PER_THREAD || (handle == NULL && is_per_thread)) return per_thread(sim_current, ret_stream);
  if (handle == NULL || handle == CU_STREAM_LEGACY) {
    *ret_stream = VG_UNLIKELY(sim_current->standard) ? sim_current->standard : &context->legacy;
    return CUDA_SUCCESS;
  }
  struct sim_stream *stream = sim_slab_find(&streams, handle, SIM_STREAM_MAGIC);
  if (VG_UNLIKELY(!stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (VG_UNLIKELY(stream->orphan)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ret_stream = stream;
  return sim_context_state(stream->context);
}

void sim_streams_orphan(struct sim_context *green) {
  sim_lock();
  for (struct sim_stream *stream = green->home->streams; stream; stream = stream->next)
    if (stream->green == green) stream->orphan = true;
  sim_unlock();
}

void sim_streams_destroy(struct sim_context *context) {
  while (context->streams) {
    struct sim_stream *stream = context->streams;
    context->streams = stream->next;
    stream_free(stream);
  }
}

CUresult sim_stream_find_created(CUstream handle, struct sim_stream **ret_stream) {
  struct sim_stream *stream = sim_slab_find(&streams, handle, SIM_STREAM_MAGIC);
  if (!stream || stream->object.inner) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->orphan) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ret_stream = stream;
  return sim_context_state(stream->context);
}

void sim_stream_end(struct sim_stream *stream) {
  sim_lock();
  struct sim_stream **link = &stream->context->streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
  sim_unlock();
  sim_submit_leave(stream);
  stream_free(stream);
}

/* ---- entry points ---- */

SIM_PUBLIC CUresult cuStreamCreateWithPriority(CUstream *ret_handle, unsigned flags, int priority) {
  struct sim_context *context;
  struct sim_stream *stream;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  result = sim_stream_make(sim_current, flags, priority, &stream);
  if (result == CUDA_SUCCESS) *ret_handle = (CUstream)stream;
  return result;
}

SIM_PUBLIC CUresult cuStreamCreate(CUstream *ret_handle, unsigned flags) {
  return cuStreamCreateWithPriority(ret_handle, flags, 0);
}

/* Returns at once; what was given to the stream is carried out all the same. */
SIM_PUBLIC CUresult cuStreamDestroy_v2(CUstream handle) {
  struct sim_stream *stream;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = sim_stream_find_created(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) sim_capture_work()->end_stream(stream);
  sim_stream_end(stream);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuStreamDestroy(CUstream handle) {
  return cuStreamDestroy_v2(handle);
}

static CUresult synchronize(CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result == CUDA_SUCCESS) result = sim_capture_stream_unsafe(stream);
  if (result != CUDA_SUCCESS) return result;
  sim_stream_wait(stream);
  sim_wait_hook_run(stream->context);
  return sim_context_waited(stream->context);
}

static CUresult query(CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result == CUDA_SUCCESS) result = sim_capture_stream_unsafe(stream);
  if (result != CUDA_SUCCESS) return result;
  return sim_point_query(sim_stream_point(stream)) ? sim_context_waited(stream->context) : CUDA_ERROR_NOT_READY;
}

static CUresult get_context(CUstream handle, CUcontext *ret_context, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_context) return CUDA_ERROR_INVALID_VALUE;
  *ret_context = (CUcontext)(stream->green ? stream->green : stream->context);
  return CUDA_SUCCESS;
}

static CUresult get_green(CUstream handle, CUgreenCtx *ret_green, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_green) return CUDA_ERROR_INVALID_VALUE;
  *ret_green = (CUgreenCtx)stream->green;
  return CUDA_SUCCESS;
}

/* Of a stream of a green context that one, and no other. */
static CUresult get_either(CUstream handle, CUcontext *ret_context, CUgreenCtx *ret_green, bool is_per_thread) {
  CUgreenCtx green;
  CUresult result = get_green(handle, &green, is_per_thread);
  if (result == CUDA_SUCCESS) result = get_context(handle, ret_context, is_per_thread);
  if (result != CUDA_SUCCESS) return result;
  if (green) *ret_context = NULL;
  if (ret_green) *ret_green = green;
  return CUDA_SUCCESS;
}

static CUresult get_device(CUstream handle, CUdevice *ret_device, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_device) return CUDA_ERROR_INVALID_VALUE;
  *ret_device = stream->context->ordinal;
  return CUDA_SUCCESS;
}

static CUresult get_flags(CUstream handle, unsigned *ret_flags, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_flags) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = stream->flags;
  return CUDA_SUCCESS;
}

static CUresult get_priority(CUstream handle, int *ret_priority, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_priority) return CUDA_ERROR_INVALID_VALUE;
  *ret_priority = stream->priority;
  return CUDA_SUCCESS;
}

static CUresult get_id(CUstream handle, unsigned long long *ret_id, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_id) return CUDA_ERROR_INVALID_VALUE;
  *ret_id = stream->id;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuStreamSynchronize(CUstream stream) {
  return synchronize(stream, false);
}
SIM_PUBLIC CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return synchronize(stream, true);
}
SIM_PUBLIC CUresult cuStreamQuery(CUstream stream) {
  return query(stream, false);
}
SIM_PUBLIC CUresult cuStreamQuery_ptsz(CUstream stream) {
  return query(stream, true);
}
SIM_PUBLIC CUresult cuStreamGetCtx(CUstream stream, CUcontext *ret) {
  return get_context(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *ret) {
  return get_context(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ret, CUgreenCtx *ret_green) {
  return get_either(stream, ret, ret_green, false);
}
SIM_PUBLIC CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ret, CUgreenCtx *ret_green) {
  return get_either(stream, ret, ret_green, true);
}
SIM_PUBLIC CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *ret) {
  return get_green(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetDevice(CUstream stream, CUdevice *ret) {
  return get_device(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice *ret) {
  return get_device(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetFlags(CUstream stream, unsigned *ret) {
  return get_flags(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned *ret) {
  return get_flags(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetPriority(CUstream stream, int *ret) {
  return get_priority(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetPriority_ptsz(CUstream stream, int *ret) {
  return get_priority(stream, ret, true);
}
SIM_PUBLIC CUresult cuStreamGetId(CUstream stream, unsigned long long *ret) {
  return get_id(stream, ret, false);
}
SIM_PUBLIC CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *ret) {
  return get_id(stream, ret, true);
}
