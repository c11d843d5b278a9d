/*
 * context.c - contexts: primary ones (one per device, counted) and created ones, and each thread's stack of current
 * contexts. A context costs device memory (context_bytes), which the server may refuse.
 */
#include "simgpu/contexts/context.h"
#include "simgpu/arrays/array.h"
#include "simgpu/base/slab.h"
#include "simgpu/capture/capture.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/ipc/ipc.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define STACK_MAX 64

static struct sim_context *all;               /* under sim_lock() */
static uint32_t server_ids[SIM_CONTEXTS_MAX]; /* 1 = taken, under sim_lock() */

static __thread struct sim_context *stack[STACK_MAX]; /* below the current one */
static __thread int depth;

static uint32_t server_id_take(void) {
  uint32_t id = 0;
  sim_lock();
  while (id < SIM_CONTEXTS_MAX && server_ids[id]) id++;
  if (id < SIM_CONTEXTS_MAX) server_ids[id] = 1;
  sim_unlock();
  return id;
}

static void server_id_give(uint32_t id) {
  sim_lock();
  server_ids[id] = 0;
  sim_unlock();
}

static CUresult context_make(CUdevice ordinal, unsigned flags, bool primary, struct sim_context **ret_context) {
  struct sim_device *device = sim_device(ordinal);
  uint32_t id = server_id_take(), slot = sim_slot_take(), join = sim_slot_take();
  int rc = id == SIM_CONTEXTS_MAX || slot == UINT32_MAX || join == UINT32_MAX
               ? -ENOSPC
               : sim_link_request(SIM_REQUEST_CONTEXT_CREATE, device->index, id, 0);
  struct sim_context *context = rc == 0 ? sim_slab_get(&sim_contexts, SIM_CONTEXT_MAGIC) : NULL;
  if (!context) {
    if (id < SIM_CONTEXTS_MAX) server_id_give(id);
    if (slot != UINT32_MAX) sim_slot_give(slot);
    if (join != UINT32_MAX) sim_slot_give(join);
    return rc == -EPIPE ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  context->home = context;
  context->device = device->index;
  context->ordinal = ordinal;
  context->server_id = id;
  context->flags = flags;
  context->primary = primary;
  context->users = 1;
  context->id = sim_next_id();
  sim_limits_fill(context);
  sim_stream_init(&context->legacy, context, slot);
  sim_stream_init(&context->join, context, join);
  sim_lock();
  context->next = all;
  all = context;
  sim_unlock();
  *ret_context = context;
  return CUDA_SUCCESS;
}

static void list_remove(struct sim_context *context) {
  sim_lock();
  struct sim_context **link = &all;
  while (*link != context) link = &(*link)->next;
  *link = context->next;
  sim_unlock();
}

static struct sim_context *green_of(const struct sim_context *home) {
  sim_lock();
  struct sim_context *found = all;
  while (found && (found->home != home || found == home)) found = found->next;
  sim_unlock();
  return found;
}

static void green_end(struct sim_context *green) {
  sim_context_wait(green);
  sim_streams_orphan(green);
  list_remove(green);
  sim_slot_give(green->join.slot);
  sim_slab_put(&sim_contexts, green);
}

static void context_destroy(struct sim_context *context) {
  sim_context_wait(context);
  sim_capture_context_destroy(context);
  sim_graph_memory_context_destroy(context);
  sim_modules_destroy(context);
  sim_events_destroy(context);
  sim_streams_destroy(context);
  sim_arrays_destroy(context);
  sim_ipc_destroy(context);
  sim_memory_destroy(context);
  sim_limits_end(context);
  for (struct sim_context *green; (green = green_of(context)) != NULL;) green_end(green);
  list_remove(context);
  sim_lock();
  for (struct sim_context *other = all; other; other = other->next) other->peers &= ~(1ull << context->server_id);
  sim_unlock();
  sim_link_request(SIM_REQUEST_CONTEXT_DESTROY, context->device, context->server_id, 0);
  server_id_give(context->server_id);
  sim_slot_give(context->legacy.slot);
  sim_slot_give(context->join.slot);
  sim_slab_put(&sim_contexts, context);
}

static CUresult push_context(struct sim_context *context) {
  if (depth == STACK_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  stack[depth++] = sim_current;
  sim_current = context;
  return CUDA_SUCCESS;
}

static void pop_context(void) {
  sim_current = depth > 0 ? stack[--depth] : NULL;
}

static bool flags_valid(unsigned flags) {
  return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && __builtin_popcount(flags & CU_CTX_SCHED_MASK) <= 1;
}

/* ---- created contexts ---- */

static CUresult create(CUcontext *ret_handle, unsigned flags, CUdevice ordinal) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || !flags_valid(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!sim_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  struct sim_context *context;
  result = context_make(ordinal, flags, false, &context);
  if (result == CUDA_SUCCESS) result = push_context(context);
  if (result == CUDA_SUCCESS) *ret_handle = (CUcontext)context;
  return result;
}

SIM_PUBLIC CUresult cuCtxCreate_v2(CUcontext *ret_handle, unsigned flags, CUdevice ordinal) {
  return create(ret_handle, flags, ordinal);
}

SIM_PUBLIC CUresult cuCtxCreate(CUcontext *ret_handle, unsigned flags, CUdevice ordinal) {
  return create(ret_handle, flags, ordinal);
}

SIM_PUBLIC CUresult cuCtxCreate_v3(CUcontext *ret_handle, CUexecAffinityParam *affinities, int count, unsigned flags,
                                   CUdevice ordinal) {
  if (count > 0 && affinities) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(ret_handle, flags, ordinal);
}

SIM_PUBLIC CUresult cuCtxCreate_v4(CUcontext *ret_handle, CUctxCreateParams *params, unsigned flags, CUdevice ordinal) {
  if (params && params->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(ret_handle, flags, ordinal);
}

SIM_PUBLIC CUresult cuCtxDestroy_v2(CUcontext handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = handle ? sim_context_find(handle) : NULL;
  if (!context || context->primary || context->home != context) return CUDA_ERROR_INVALID_CONTEXT;
  context_destroy(context);
  if (sim_current == context) pop_context();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxDestroy(CUcontext handle) {
  return cuCtxDestroy_v2(handle);
}

/* ---- an old way to share a created context: the last that detaches ends it ---- */

SIM_PUBLIC CUresult cuCtxAttach(CUcontext *ret_handle, unsigned flags) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || flags) return CUDA_ERROR_INVALID_VALUE;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT; /* green ones as well */
  __atomic_add_fetch(&context->users, 1, __ATOMIC_RELAXED);
  *ret_handle = (CUcontext)context;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxDetach(CUcontext handle) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if ((CUcontext)context != handle || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  return __atomic_sub_fetch(&context->users, 1, __ATOMIC_ACQ_REL) == 0 ? cuCtxDestroy_v2(handle) : CUDA_SUCCESS;
}

/* ---- the primary context ---- */

static struct sim_context *primary_of(const struct sim_device *device) {
  return device->primary ? sim_context_find(device->primary) : NULL;
}

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

SIM_PUBLIC CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_handle, CUdevice ordinal) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (!ret_handle) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  struct sim_context *context = NULL;
  pthread_mutex_lock(&primary_lock);
  if (!device->primary) result = context_make(ordinal, device->primary_flags, true, &context);
  if (context) device->primary = (CUcontext)context;
  if (result == CUDA_SUCCESS) {
    device->primary_references++;
    *ret_handle = device->primary;
  }
  pthread_mutex_unlock(&primary_lock);
  return result;
}

static CUresult primary_release(CUdevice ordinal, bool reset) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&primary_lock);
  struct sim_context *context = primary_of(device);
  if (!reset && !context) result = CUDA_ERROR_INVALID_CONTEXT;
  if (context && !reset) device->primary_references--;
  if (context && (reset || device->primary_references == 0)) {
    device->primary = NULL;
    device->primary_references = 0;
    context_destroy(context);
  }
  pthread_mutex_unlock(&primary_lock);
  return result;
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return primary_release(ordinal, false);
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  return primary_release(ordinal, false);
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return primary_release(ordinal, true);
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) {
  return primary_release(ordinal, true);
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags_valid(flags)) return CUDA_ERROR_INVALID_VALUE;
  device->primary_flags = flags;
  struct sim_context *context = primary_of(device);
  if (context) context->flags = flags;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

SIM_PUBLIC CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *ret_flags, int *ret_active) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!ret_flags || !ret_active) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = device->primary_flags;
  *ret_active = primary_of(device) != NULL;
  return CUDA_SUCCESS;
}

/* ---- green contexts: handles with streams of their own; the rest is the primary context's ---- */

CUresult sim_green_make(CUdevice ordinal, unsigned sm_count, unsigned sm_alignment, struct sim_context **ret_green) {
  CUcontext primary;
  CUresult result = cuDevicePrimaryCtxRetain(&primary, ordinal);
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *home = (struct sim_context *)primary;
  uint32_t join = sim_slot_take();
  struct sim_context *green = join == UINT32_MAX ? NULL : sim_slab_get(&sim_contexts, SIM_CONTEXT_MAGIC);
  if (!green) {
    if (join != UINT32_MAX) sim_slot_give(join);
    cuDevicePrimaryCtxRelease_v2(ordinal);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  green->home = home;
  green->device = home->device;
  green->ordinal = ordinal;
  green->server_id = home->server_id;
  green->flags = home->flags;
  green->id = sim_next_id();
  green->sm_count = sm_count;
  green->sm_alignment = sm_alignment;
  sim_stream_init(&green->join, green, join);
  sim_lock();
  green->next = all;
  all = green;
  sim_unlock();
  result = sim_stream_make(green, CU_STREAM_NON_BLOCKING, 0, &green->standard);
  if (result != CUDA_SUCCESS) {
    sim_green_destroy(green);
    return result;
  }
  green->standard->object.inner = true;
  *ret_green = green;
  return CUDA_SUCCESS;
}

CUresult sim_green_find(CUgreenCtx handle, struct sim_context **ret_green) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  *ret_green = sim_context_find((CUcontext)handle);
  if (!*ret_green) return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  return (*ret_green)->home == *ret_green ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

void sim_green_destroy(struct sim_context *green) {
  CUdevice ordinal = green->ordinal;
  green_end(green);
  if (sim_current == green) pop_context();
  cuDevicePrimaryCtxRelease_v2(ordinal);
}

/* ---- the thread's current context ---- */

SIM_PUBLIC CUresult cuCtxSetCurrent(CUcontext handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = handle ? sim_context_find(handle) : NULL;
  if (handle && !context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context)
    sim_current = context;
  else
    pop_context();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxGetCurrent(CUcontext *ret_handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle) return CUDA_ERROR_INVALID_VALUE;
  *ret_handle = (CUcontext)sim_current;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = handle ? sim_context_find(handle) : NULL;
  return context ? push_context(context) : CUDA_ERROR_INVALID_CONTEXT;
}

SIM_PUBLIC CUresult cuCtxPushCurrent(CUcontext handle) {
  return cuCtxPushCurrent_v2(handle);
}

SIM_PUBLIC CUresult cuCtxPopCurrent_v2(CUcontext *ret_handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!sim_current) return CUDA_ERROR_INVALID_CONTEXT;
  if (ret_handle) *ret_handle = (CUcontext)sim_current;
  pop_context();
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxPopCurrent(CUcontext *ret_handle) {
  return cuCtxPopCurrent_v2(ret_handle);
}

SIM_PUBLIC CUresult cuCtxSynchronize(void) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_context(context); /* in every mode */
  if (result != CUDA_SUCCESS) return result;
  sim_context_wait(sim_current);
  sim_wait_hook_run(context);
  return sim_context_waited(context);
}

SIM_PUBLIC CUresult cuCtxSynchronize_v2(CUcontext handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = sim_context_find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  result = sim_context_state(context);
  if (result == CUDA_SUCCESS) result = sim_capture_context(context);
  if (result != CUDA_SUCCESS) return result;
  sim_context_wait(context);
  sim_wait_hook_run(context->home);
  return sim_context_waited(context);
}
