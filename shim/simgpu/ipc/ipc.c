/*
 * ipc.c - memory of cuMemAlloc that other processes open by a handle (cuIpc*Mem*). What is shared is whole granules: a
 * small allocation takes its neighbours along, as with the driver. The memory lives until its maker has freed it and
 * all others have closed it.
 */
#include "simgpu/ipc/ipc.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/map.h"
#include "simgpu/arena/share.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct handle { /* what a CUipcMemHandle holds */
  uint64_t key;
  uint64_t offset; /* of the allocation in what is shared */
  uint64_t bytes;  /* of the allocation */
  int32_t pid;     /* of its maker, which cannot open it */
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle has 64 bytes");

struct opened {
  struct opened *next;
  struct sim_context *context;
  struct handle handle;
  struct sim_share share;
  char *map;
  uint32_t references;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *opened;

SIM_PUBLIC CUresult cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr pointer) {
  struct sim_context *context;
  struct sim_allocation allocation;
  struct handle handle = {.pid = getpid()};
  uint64_t base, bytes;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || !sim_memory_find(pointer, &allocation) || allocation.kind != CU_MEMORYTYPE_DEVICE ||
      allocation.managed || allocation.mapped || allocation.pool || allocation.imported || allocation.external)
    return CUDA_ERROR_INVALID_VALUE;
  sim_share_unit(&allocation, &base, &bytes);
  result = sim_share_memory(allocation.device, (void *)base, bytes, &handle.key);
  if (result != CUDA_SUCCESS) return result;
  handle.offset = allocation.base - base;
  handle.bytes = allocation.bytes;
  memset(ret_handle, 0, sizeof *ret_handle);
  memcpy(ret_handle, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

static bool map(struct opened *one) {
  one->map = sim_reserve_bytes(one->share.bytes, 0);
  if (!one->map) return false;
  struct sim_allocation allocation = {.base = (CUdeviceptr)one->map + one->handle.offset,
                                      .bytes = one->handle.bytes,
                                      .context = one->context,
                                      .device = one->share.device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .imported = true};
  if (sim_arena_place(one->share.fd, one->share.offset, one->map, one->share.bytes, SIM_READ_WRITE) &&
      sim_memory_add(&allocation))
    return true;
  sim_unmap_bytes(one->map, one->share.bytes);
  return false;
}

static void end(struct opened *one) { /* not in the list any more */
  struct sim_allocation allocation;
  sim_memory_remove((CUdeviceptr)one->map + one->handle.offset, &allocation);
  sim_unmap_bytes(one->map, one->share.bytes);
  sim_share_close(&one->share);
  close(one->share.fd);
  free(one);
}

static CUresult open_first(struct sim_context *context, const struct handle *handle, CUdeviceptr *ret_pointer) {
  struct opened *one = calloc(1, sizeof *one);
  if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = sim_share_open(handle->key, SIM_SHARE_MEMORY, &one->share);
  if (result != CUDA_SUCCESS) {
    free(one);
    return result;
  }
  one->context = context;
  one->handle = *handle;
  one->references = 1;
  bool fits = handle->offset <= one->share.bytes && handle->bytes <= one->share.bytes - handle->offset;
  if (!fits || !map(one)) {
    sim_share_close(&one->share);
    close(one->share.fd);
    free(one);
    return fits ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_INVALID_HANDLE;
  }
  one->next = opened;
  opened = one;
  *ret_pointer = (CUdeviceptr)one->map + handle->offset;
  return CUDA_SUCCESS;
}

/* A handle that this context has open already gives the same pointer once more. */
SIM_PUBLIC CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret_pointer, CUipcMemHandle text, unsigned flags) {
  struct sim_context *context;
  struct handle handle;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  memcpy(&handle, &text, sizeof handle);
  if (!ret_pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  struct opened *one = opened;
  while (one && (one->context != context || memcmp(&one->handle, &handle, sizeof handle) != 0)) one = one->next;
  if (one) {
    one->references++;
    *ret_pointer = (CUdeviceptr)one->map + handle.offset;
  } else {
    result = open_first(context, &handle, ret_pointer);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

SIM_PUBLIC CUresult cuIpcOpenMemHandle(CUdeviceptr *ret_pointer, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(ret_pointer, handle, flags);
}

/* Waits for everything that was given to the context, as freeing does. */
SIM_PUBLIC CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  sim_context_wait(context);
  pthread_mutex_lock(&lock);
  struct opened **link = &opened;
  while (*link && (CUdeviceptr)(*link)->map + (*link)->handle.offset != pointer) link = &(*link)->next;
  struct opened *one = *link;
  bool last = one && --one->references == 0;
  if (last) *link = one->next;
  pthread_mutex_unlock(&lock);
  if (last) end(one);
  return one ? sim_waited() : CUDA_ERROR_INVALID_VALUE;
}

void sim_ipc_destroy(struct sim_context *context) {
  for (;;) {
    pthread_mutex_lock(&lock);
    struct opened **link = &opened;
    while (*link && (*link)->context != context) link = &(*link)->next;
    struct opened *one = *link;
    if (one) *link = one->next;
    pthread_mutex_unlock(&lock);
    if (!one) return;
    end(one);
  }
}
