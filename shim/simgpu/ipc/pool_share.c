/*
 * pool_share.c - pools that other processes import by a descriptor, and pointers from them. An imported pool makes no
 * allocations. Called by programs; builds on memory/pool.c and memory/pool_import.c.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/share.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/memory/pool_import.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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
  struct sim_pool_pointer pointer;
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

SIM_PUBLIC CUresult cuMemPoolImportPointer(CUdeviceptr *ret_pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  struct sim_pool_pointer pointer;
  int device;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  const struct sim_pool_sharing *sharing = sim_pool_sharing(pool, &device);
  if (!ret_pointer || !data || !sharing || !sharing->imported) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&pointer, data, sizeof pointer);
  if (pointer.pool != sharing->share.key) return CUDA_ERROR_INVALID_VALUE;
  return sim_pool_import_begin(&pointer, pool, ret_pointer);
}
