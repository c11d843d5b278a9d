/*
 * pool_share.c - pools that other processes import by a descriptor, and pointers from them. An imported pool makes no
 * allocations; what is imported from it is mapped until it is freed here, and charged to the pool's process.
 */
#include "simgpu/core.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pointer { /* what a CUmemPoolPtrExportData holds */
  uint64_t key;
  uint64_t pool; /* its key */
  uint64_t offset, bytes;
};
_Static_assert(sizeof(struct pointer) <= sizeof(CUmemPoolPtrExportData), "it has 64 bytes");

struct import {
  struct import *next;
  struct sim_share share;
  char *map;
  CUdeviceptr pointer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *imports;

void sim_pool_unshare(struct sim_pool_sharing *sharing) {
  if (!sharing->share.key) return;
  sim_share_close(&sharing->share);
  if (sharing->imported) close(sharing->share.fd);
  sharing->share.key = 0;
}

SIM_PUBLIC CUresult cuMemPoolExportToShareableHandle(void *ret_handle, CUmemoryPool handle,
                                                     CUmemAllocationHandleType type, unsigned long long flags) {
  int device;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool_sharing *sharing = sim_pool_sharing(handle, &device);
  if (!ret_handle || !sharing || !sharing->exportable || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  if (!sharing->share.key) {
    sharing->share = (struct sim_share){.kind = SIM_SHARE_POOL, .device = device};
    result = sim_share_make(&sharing->share);
  }
  if (result == CUDA_SUCCESS) result = sim_share_ticket(sharing->share.key, ret_handle);
  pthread_mutex_unlock(&lock);
  return result;
}

SIM_PUBLIC CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *ret_pool, void *shareable,
                                                       CUmemAllocationHandleType type, unsigned long long flags) {
  struct sim_share share;
  uint64_t key;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pool || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !sim_share_ticket_key((int)(intptr_t)shareable, &key))
    return CUDA_ERROR_INVALID_VALUE;
  result = sim_share_open(key, SIM_SHARE_POOL, &share);
  if (result != CUDA_SUCCESS) return result;
  *ret_pool = sim_pool_import(&share);
  if (*ret_pool) return CUDA_SUCCESS;
  sim_share_close(&share);
  close(share.fd);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *ret_data, CUdeviceptr address) {
  struct sim_allocation allocation;
  struct pointer pointer;
  uint64_t base, bytes;
  int device;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_data || !sim_memory_find(address, &allocation) || !allocation.pool || allocation.imported)
    return CUDA_ERROR_INVALID_VALUE;
  struct sim_pool_sharing *sharing = sim_pool_sharing(allocation.pool, &device);
  if (!sharing || !sharing->share.key) return CUDA_ERROR_INVALID_VALUE;
  sim_share_unit(&allocation, &base, &bytes);
  result = sim_share_memory(device, (void *)base, bytes, &pointer.key);
  if (result != CUDA_SUCCESS) return result;
  pointer.pool = sharing->share.key;
  pointer.offset = allocation.base - base;
  pointer.bytes = allocation.bytes;
  memset(ret_data, 0, sizeof *ret_data);
  memcpy(ret_data, &pointer, sizeof pointer);
  return CUDA_SUCCESS;
}

static bool map(struct import *one, const struct pointer *pointer, CUmemoryPool pool) {
  bool fits = pointer->offset <= one->share.bytes && pointer->bytes <= one->share.bytes - pointer->offset;
  one->map = fits ? sim_reserve_bytes(one->share.bytes, 0) : NULL;
  if (!one->map) return false;
  one->pointer = (CUdeviceptr)one->map + pointer->offset;
  struct sim_allocation allocation = {.base = one->pointer,
                                      .bytes = pointer->bytes,
                                      .device = one->share.device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .imported = true,
                                      .pool = pool};
  if (sim_arena_place(one->share.fd, one->share.offset, one->map, one->share.bytes, SIM_READ_WRITE) &&
      sim_memory_add(&allocation))
    return true;
  sim_unmap_bytes(one->map, one->share.bytes);
  return false;
}

SIM_PUBLIC CUresult cuMemPoolImportPointer(CUdeviceptr *ret_pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  struct pointer pointer;
  int device;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  const struct sim_pool_sharing *sharing = sim_pool_sharing(pool, &device);
  if (!ret_pointer || !data || !sharing || !sharing->imported) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&pointer, data, sizeof pointer);
  if (pointer.pool != sharing->share.key) return CUDA_ERROR_INVALID_VALUE;
  struct import *one = calloc(1, sizeof *one);
  if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
  result = sim_share_open(pointer.key, SIM_SHARE_MEMORY, &one->share);
  if (result == CUDA_SUCCESS && !map(one, &pointer, pool)) {
    sim_share_close(&one->share);
    close(one->share.fd);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    free(one);
    return result;
  }
  pthread_mutex_lock(&lock);
  one->next = imports;
  imports = one;
  pthread_mutex_unlock(&lock);
  *ret_pointer = one->pointer;
  return CUDA_SUCCESS;
}

void sim_pool_import_end(CUdeviceptr pointer) {
  pthread_mutex_lock(&lock);
  struct import **link = &imports;
  while (*link && (*link)->pointer != pointer) link = &(*link)->next;
  struct import *one = *link;
  if (one) *link = one->next;
  pthread_mutex_unlock(&lock);
  if (!one) return;
  sim_unmap_bytes(one->map, one->share.bytes);
  sim_share_close(&one->share);
  close(one->share.fd);
  free(one);
}
