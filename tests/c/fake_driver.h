/*
 * fake_driver.h - for tests of the gate: a driver in a few lines (streams whose work takes time, events, one context)
 * behind vg_real_slots, and the context list that the gate asks. Included by one test each; everything is static.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H
#include <pthread.h>

#include "base/prim.h"
#include "base/run_delay.h"
#include "check.h"
#include "context/context.h"
#include "gate/gate.h"
#include "gen/abi/real.h"

#define FAKE_STREAMS 8
#define FAKE_NEVER UINT64_MAX
#define FAKE_CONTEXT ((CUcontext)(uintptr_t)0xc0)

struct CUevent_st {
  uint64_t ready_ns;
  CUevent next, *place; /* of the list of all, and where that has this one */
};

static pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;
static CUevent fake_all_events;
static uint64_t fake_busy_until_ns[FAKE_STREAMS]; /* FAKE_NEVER: the stream waits for something that does not come */
static bool fake_serial;                          /* the streams share the device: one launch after the other */
static uint64_t fake_events;                      /* alive */
static uint32_t fake_capturing; /* streams that capture, a bit for each; the rules are those of CUDA */
static struct vg_device *fake_device;
static uint64_t fake_run_delay_ns;

uint64_t vg_run_delay_ns(void) {
  return fake_run_delay_ns;
}

void *vg_real_slots[VG_ENTRY_COUNT];

static CUstream fake_stream(uintptr_t index) {
  return (CUstream)index;
}

static uint64_t fake_end_of(CUstream stream) {
  pthread_mutex_lock(&fake_mutex);
  uint64_t end_ns = fake_busy_until_ns[(uintptr_t)stream % FAKE_STREAMS];
  pthread_mutex_unlock(&fake_mutex);
  return end_ns;
}

/* Under the mutex: when all that was launched will have completed. */
static inline uint64_t fake_last_end(void) {
  uint64_t last_ns = 0;
  for (int i = 0; i < FAKE_STREAMS; i++)
    if (fake_busy_until_ns[i] != FAKE_NEVER && fake_busy_until_ns[i] > last_ns) last_ns = fake_busy_until_ns[i];
  return last_ns;
}

static inline uint64_t fake_all_end(void) {
  pthread_mutex_lock(&fake_mutex);
  uint64_t last_ns = fake_last_end();
  pthread_mutex_unlock(&fake_mutex);
  return last_ns;
}

static inline void fake_launch(CUstream stream, uint64_t cost_ns) {
  uint64_t now_ns = vg_prim_now_ns();
  pthread_mutex_lock(&fake_mutex);
  uint64_t *end_ns = &fake_busy_until_ns[(uintptr_t)stream % FAKE_STREAMS];
  if (fake_serial && *end_ns != FAKE_NEVER) *end_ns = fake_last_end();
  if (*end_ns != FAKE_NEVER) *end_ns = (*end_ns > now_ns ? *end_ns : now_ns) + cost_ns;
  pthread_mutex_unlock(&fake_mutex);
}

static CUresult fake_event_create(CUevent *ret_event, unsigned flags) {
  (void)flags;
  CUevent event = *ret_event = calloc(1, sizeof *event);
  CHECK(event);
  __atomic_add_fetch(&fake_events, 1, __ATOMIC_RELAXED);
  pthread_mutex_lock(&fake_mutex);
  event->next = fake_all_events;
  event->place = &fake_all_events;
  if (event->next) event->next->place = &event->next;
  fake_all_events = event;
  pthread_mutex_unlock(&fake_mutex);
  return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event) {
  pthread_mutex_lock(&fake_mutex);
  *event->place = event->next;
  if (event->next) event->next->place = event->place;
  pthread_mutex_unlock(&fake_mutex);
  free(event);
  __atomic_sub_fetch(&fake_events, 1, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

/* Those of a context end with it. */
static inline void fake_context_end(void) {
  while (fake_all_events) fake_event_destroy(fake_all_events);
}

/* Work for a stream that does not capture. The legacy stream may not be used beside one that does. */
static bool fake_usable(CUstream stream) {
  uint32_t capturing = VG_LOAD(&fake_capturing);
  return !(capturing & 1u << (uintptr_t)stream % FAKE_STREAMS) && (stream || !capturing);
}

static inline void fake_capture_begin(CUstream stream) {
  vg_gate_capture_begin();
  __atomic_fetch_or(&fake_capturing, 1u << (uintptr_t)stream, __ATOMIC_ACQ_REL);
}

static inline void fake_capture_end(CUstream stream) {
  __atomic_fetch_and(&fake_capturing, ~(1u << (uintptr_t)stream), __ATOMIC_ACQ_REL);
  vg_gate_capture_end();
}

static CUstream fake_destroyed; /* no call may name it */

static CUresult fake_event_record(CUevent event, CUstream stream) {
  CHECK(fake_usable(stream) && (!fake_destroyed || stream != fake_destroyed));
  uint64_t now_ns = vg_prim_now_ns(), end_ns = fake_end_of(stream);
  VG_STORE(&event->ready_ns, end_ns > now_ns ? end_ns : now_ns);
  return CUDA_SUCCESS;
}

static CUresult fake_context_record(CUcontext context, CUevent event) {
  uint64_t ready_ns = vg_prim_now_ns(); /* on an idle device it completes at once */
  CHECK(context == FAKE_CONTEXT);
  CHECK(!VG_LOAD(&fake_capturing)); /* would end them */
  for (uintptr_t i = 0; i < FAKE_STREAMS; i++) {
    uint64_t end_ns = fake_end_of(fake_stream(i));
    if (end_ns > ready_ns) ready_ns = end_ns;
  }
  VG_STORE(&event->ready_ns, ready_ns);
  return CUDA_SUCCESS;
}

/* Global at first: then a look at an event spoils a capture of another thread. */
static __thread CUstreamCaptureMode fake_mode;

static CUresult fake_exchange(CUstreamCaptureMode *mode) {
  CUstreamCaptureMode before = fake_mode;
  fake_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

static CUresult fake_event_query(CUevent event) {
  CHECK(fake_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  return VG_LOAD(&event->ready_ns) <= vg_prim_now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_elapsed(float *ret_ms, CUevent begin, CUevent end) {
  CHECK(fake_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  uint64_t begin_ns = VG_LOAD(&begin->ready_ns), end_ns = VG_LOAD(&end->ready_ns);
  *ret_ms = (float)(int64_t)(end_ns - begin_ns) / 1e6F;
  return CUDA_SUCCESS;
}

static CUresult fake_stream_query(CUstream stream) {
  CHECK(fake_usable(stream));
  return fake_end_of(stream) <= vg_prim_now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *ret_status) {
  bool usable = fake_usable(stream);
  *ret_status = usable ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return usable || stream ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static bool fake_streams_block;

static CUresult fake_stream_flags(CUstream stream, unsigned *ret_flags) {
  *ret_flags = stream && !fake_streams_block ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  return CUDA_SUCCESS;
}

/* The last one is the gate's own. */
static CUresult fake_stream_create(CUstream *ret_stream, unsigned flags) {
  CHECK(flags == CU_STREAM_NON_BLOCKING && fake_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  *ret_stream = fake_stream(FAKE_STREAMS - 1);
  return CUDA_SUCCESS;
}

static CUresult fake_stream_destroy(CUstream stream) {
  CHECK(stream == fake_stream(FAKE_STREAMS - 1));
  return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context) {
  CHECK(context == FAKE_CONTEXT);
  return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret_context) {
  *ret_context = FAKE_CONTEXT;
  return CUDA_SUCCESS;
}

static CUresult fake_missing(void) {
  CHECK(!"the gate called a function that the fake driver does not have");
  return CUDA_ERROR_NOT_FOUND;
}

static void fake_driver_start(struct vg_device *device) {
  for (int i = 0; i < VG_ENTRY_COUNT; i++) vg_real_slots[i] = (void *)fake_missing;
  vg_real_slots[VG_ENTRY_cuEventCreate] = (void *)fake_event_create;
  vg_real_slots[VG_ENTRY_cuEventDestroy_v2] = (void *)fake_event_destroy;
  vg_real_slots[VG_ENTRY_cuEventRecord] = (void *)fake_event_record;
  vg_real_slots[VG_ENTRY_cuEventRecord_ptsz] = (void *)fake_event_record;
  vg_real_slots[VG_ENTRY_cuEventQuery] = (void *)fake_event_query;
  vg_real_slots[VG_ENTRY_cuEventElapsedTime] = (void *)fake_elapsed;
  vg_real_slots[VG_ENTRY_cuStreamCreate] = (void *)fake_stream_create;
  vg_real_slots[VG_ENTRY_cuStreamDestroy_v2] = (void *)fake_stream_destroy;
  vg_real_slots[VG_ENTRY_cuStreamQuery] = (void *)fake_stream_query;
  vg_real_slots[VG_ENTRY_cuStreamGetFlags] = (void *)fake_stream_flags;
  vg_real_slots[VG_ENTRY_cuStreamIsCapturing] = (void *)fake_is_capturing;
  vg_real_slots[VG_ENTRY_cuStreamIsCapturing_ptsz] = (void *)fake_is_capturing;
  vg_real_slots[VG_ENTRY_cuCtxPushCurrent_v2] = (void *)fake_push;
  vg_real_slots[VG_ENTRY_cuCtxPopCurrent_v2] = (void *)fake_pop;
  vg_real_slots[VG_ENTRY_cuCtxRecordEvent] = (void *)fake_context_record;
  vg_real_slots[VG_ENTRY_cuThreadExchangeStreamCaptureMode] = (void *)fake_exchange;
  for (int i = 0; i < FAKE_STREAMS; i++) fake_busy_until_ns[i] = 0;
  fake_capturing = 0;
  fake_serial = false;
  fake_device = device;
}

/* ---- what context.c and resolve.c answer ---- */

bool vg_resolve_has(enum vg_entry entry, void **slots) {
  return slots[entry] != (void *)fake_missing;
}

struct vg_device *vg_context_device(void) {
  return fake_device;
}

struct vg_device *vg_context_current(CUcontext *ret_context) {
  *ret_context = FAKE_CONTEXT;
  return fake_device;
}

uint32_t vg_context_generation = 1;
__thread struct vg_context_here vg_context_here;

CUcontext vg_context_remembered(void) {
  uint32_t now = VG_LOAD(&vg_context_generation);
  if (vg_context_here.generation != now)
    vg_context_here = (struct vg_context_here){.generation = now, .context = FAKE_CONTEXT};
  return FAKE_CONTEXT;
}

int vg_context_list(const struct vg_device *device, CUcontext *ret_contexts, int capacity) {
  CHECK(device == fake_device && capacity > 0);
  ret_contexts[0] = FAKE_CONTEXT;
  return 1;
}

void vg_context_lock(void) {}

void vg_context_unlock(void) {}

#endif
