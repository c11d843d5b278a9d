/*
 * context_info.c - what a context says of itself and which knobs it has. Limits and cache settings are kept and
 * answered; they change no time. The stacks of all threads that a device can hold, the heap of device code and the
 * buffer of its output are device memory, taken as soon as they are asked for: those of the usual sizes are a part of
 * what the context costs, and larger ones take the difference.
 */
#include "simgpu/arena/charge.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <string.h>

SIM_PUBLIC CUresult cuCtxGetDevice(CUdevice *ret_device) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_device) return CUDA_ERROR_INVALID_VALUE;
  *ret_device = context->ordinal;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxGetDevice_v2(CUdevice *ret_device, CUcontext handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = sim_context_find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!ret_device) return CUDA_ERROR_INVALID_VALUE;
  *ret_device = context->ordinal;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxGetFlags(unsigned *ret_flags) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_flags) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = context->flags;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxSetFlags(unsigned flags) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (flags & ~(unsigned)CU_CTX_FLAGS_MASK) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxGetId(CUcontext handle, unsigned long long *ret_id) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = sim_context_find(handle);
  if (!context) return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  if (!ret_id) return CUDA_ERROR_INVALID_VALUE;
  *ret_id = context->id;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *ret_version) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_version) return CUDA_ERROR_INVALID_VALUE;
  if (!sim_context_find(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  *ret_version = 3020; /* what the driver answers for every context since CUDA 3.2 */
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (ret_least) *ret_least = 0;
  if (ret_greatest) *ret_greatest = -5;
  return CUDA_SUCCESS;
}

static CUresult limit_check(CUlimit limit, struct sim_context **ret_context) {
  CUresult result = sim_enter(ret_context);
  if (result != CUDA_SUCCESS) return result;
  return (unsigned)limit < sizeof(*ret_context)->limits / sizeof(size_t) ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

SIM_PUBLIC CUresult cuCtxGetLimit(size_t *ret_value, CUlimit limit) {
  struct sim_context *context;
  CUresult result = limit_check(limit, &context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_value) return CUDA_ERROR_INVALID_VALUE;
  *ret_value = context->limits[limit];
  return CUDA_SUCCESS;
}

static const size_t usual[] = {[CU_LIMIT_STACK_SIZE] = 1024,
                               [CU_LIMIT_PRINTF_FIFO_SIZE] = 7u << 20,
                               [CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20,
                               [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
                               [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
                               [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64};
static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;

void sim_limits_fill(struct sim_context *context) {
  memcpy(context->limits, usual, sizeof usual);
}

/* UINT64_MAX: more than can be said. */
static uint64_t limit_bytes(const struct sim_context *context, CUlimit limit, uint64_t value) {
  int threads = 1;
  uint64_t bytes;
  if ((unsigned)limit > CU_LIMIT_MALLOC_HEAP_SIZE) return 0;
  if (limit == CU_LIMIT_STACK_SIZE)
    cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, context->ordinal);
  if (limit == CU_LIMIT_STACK_SIZE) threads *= sim_device(context->ordinal)->sm_count;
  if (__builtin_mul_overflow(value, (uint64_t)threads, &bytes) || bytes > UINT64_MAX / 2) return UINT64_MAX;
  return sim_round_up(bytes, SIM_GRANULE_BYTES);
}

static uint64_t beyond_usual(const struct sim_context *context, CUlimit limit) {
  if ((unsigned)limit > CU_LIMIT_MALLOC_HEAP_SIZE) return 0;
  uint64_t bytes = limit_bytes(context, limit, context->limits[limit]);
  uint64_t included = limit_bytes(context, limit, usual[limit]);
  return bytes > included ? bytes - included : 0;
}

SIM_PUBLIC CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  struct sim_context *context;
  CUresult result = limit_check(limit, &context);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&limits_lock);
  size_t before = context->limits[limit];
  uint64_t taken = beyond_usual(context, limit);
  context->limits[limit] = value;
  uint64_t needed = beyond_usual(context, limit);
  if (needed > taken) result = sim_memory_charge(context->device, needed - taken);
  if (needed < taken) sim_memory_refund(context->device, taken - needed);
  if (result != CUDA_SUCCESS) context->limits[limit] = before;
  pthread_mutex_unlock(&limits_lock);
  return result;
}

void sim_limits_end(const struct sim_context *context) {
  uint64_t taken = 0;
  for (CUlimit limit = 0; limit <= CU_LIMIT_MALLOC_HEAP_SIZE; limit++) taken += beyond_usual(context, limit);
  if (taken) sim_memory_refund(context->device, taken);
}

SIM_PUBLIC CUresult cuCtxGetCacheConfig(CUfunc_cache *ret_config) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_config) return CUDA_ERROR_INVALID_VALUE;
  *ret_config = context->cache_config;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) context->cache_config = config;
  return result;
}

SIM_PUBLIC CUresult cuCtxGetSharedMemConfig(CUsharedconfig *ret_config) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_config) return CUDA_ERROR_INVALID_VALUE;
  *ret_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  struct sim_context *context;
  (void)config; /* the same on every device since Maxwell */
  return sim_enter(&context);
}

SIM_PUBLIC CUresult cuCtxResetPersistingL2Cache(void) {
  struct sim_context *context;
  return sim_enter(&context);
}

/* Peer access costs nothing here and needs no map: device pointers are addresses of the process. */
static CUresult peer(CUcontext handle) {
  struct sim_context *context, *other = handle ? sim_context_find(handle) : NULL;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!other) return CUDA_ERROR_INVALID_CONTEXT;
  return other->device == context->device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static uint64_t peer_bit(CUcontext handle) {
  return 1ull << sim_context_find(handle)->server_id;
}

SIM_PUBLIC CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  CUresult result = peer(handle);
  if (result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t before = __atomic_fetch_or(&sim_current->home->peers, peer_bit(handle), __ATOMIC_RELAXED);
  return before & peer_bit(handle) ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  CUresult result = peer(handle);
  if (result != CUDA_SUCCESS) return result;
  uint64_t before = __atomic_fetch_and(&sim_current->home->peers, ~peer_bit(handle), __ATOMIC_RELAXED);
  return before & peer_bit(handle) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

SIM_PUBLIC CUresult cuCtxGetExecAffinity(CUexecAffinityParam *ret_affinity, CUexecAffinityType type) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_affinity) return CUDA_ERROR_INVALID_VALUE;
  (void)type;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY; /* without MPS */
}

SIM_PUBLIC CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                               CUflushGPUDirectRDMAWritesScope scope) {
  struct sim_context *context;
  (void)target, (void)scope; /* host-backed memory has one order for all */
  return sim_enter(&context);
}
