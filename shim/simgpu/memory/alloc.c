/*
 * alloc.c - the entry points that allocate device, managed and host memory, and cuMemGetInfo.
 */
#define _GNU_SOURCE
#include "simgpu/memory/alloc.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/map.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <string.h>
#include <sys/mman.h>

#define PITCH_ALIGN_BYTES 512ull

static CUresult enter_unsafe(struct sim_context **ret_context) {
  CUresult result = sim_enter(ret_context);
  return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

SIM_PUBLIC CUresult cuMemAlloc_v2(CUdeviceptr *ret_pointer, size_t bytes) {
  struct sim_context *context;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pointer) return CUDA_ERROR_INVALID_VALUE;
  return sim_memory_alloc(context, bytes, ret_pointer);
}

size_t sim_pitch(size_t width_bytes, size_t height, unsigned element_bytes) {
  if (width_bytes == 0 || height == 0) return 0;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return 0;
  size_t pitch = (width_bytes + PITCH_ALIGN_BYTES - 1) / PITCH_ALIGN_BYTES * PITCH_ALIGN_BYTES;
  return pitch < width_bytes || height > SIZE_MAX / pitch ? 0 : pitch;
}

SIM_PUBLIC CUresult cuMemAllocPitch_v2(CUdeviceptr *ret_pointer, size_t *ret_pitch, size_t width_bytes, size_t height,
                                       unsigned element_bytes) {
  struct sim_context *context;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  size_t pitch = sim_pitch(width_bytes, height, element_bytes);
  if (!ret_pointer || !ret_pitch || pitch == 0) return CUDA_ERROR_INVALID_VALUE;
  result = sim_memory_alloc(context, pitch * height, ret_pointer);
  if (result == CUDA_SUCCESS) *ret_pitch = pitch;
  return result;
}

SIM_PUBLIC CUresult cuMemAllocManaged(CUdeviceptr *ret_pointer, size_t bytes, unsigned flags) {
  struct sim_context *context;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pointer || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
  return sim_memory_alloc_managed(context, bytes, ret_pointer);
}

/* Legal for any device pointer, from a pool as well; everything in flight is waited for. */
SIM_PUBLIC CUresult cuMemFree_v2(CUdeviceptr pointer) {
  struct sim_context *context;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  if (pointer == 0) return CUDA_SUCCESS;
  struct sim_allocation allocation;
  bool known = sim_memory_find(pointer, &allocation) && allocation.base == pointer;
  if (known && allocation.pool) {
    sim_context_wait(context);
    return sim_pool_free(pointer) ? sim_waited() : CUDA_ERROR_INVALID_VALUE;
  }
  return known && allocation.free && allocation.free(pointer) ? CUDA_SUCCESS : sim_memory_free(context, pointer);
}

SIM_PUBLIC CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t free_bytes, total_bytes;
  sim_device_memory(context->device, &free_bytes, &total_bytes);
  if (ret_free) *ret_free = free_bytes;
  if (ret_total) *ret_total = total_bytes;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr address) {
  struct sim_context *context;
  struct sim_allocation allocation;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!sim_memory_find(address, &allocation)) return CUDA_ERROR_NOT_FOUND;
  if (ret_base) *ret_base = allocation.base;
  if (ret_bytes) *ret_bytes = allocation.bytes;
  return CUDA_SUCCESS;
}

/* ---- host memory ---- */

SIM_PUBLIC CUresult cuMemHostAlloc(void **ret_pointer, size_t bytes, unsigned flags) {
  struct sim_context *context;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!ret_pointer || bytes == 0 || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  void *map = sim_map_bytes(bytes);
  if (!map) return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(map, bytes, MADV_DOFORK); /* host memory stays the child's as well */
  struct sim_allocation allocation = {.base = (CUdeviceptr)map,
                                      .bytes = bytes,
                                      .context = context,
                                      .kind = CU_MEMORYTYPE_HOST,
                                      .owned = true,
                                      .flags = flags};
  if (!sim_memory_add(&allocation)) {
    sim_unmap_bytes(map, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *ret_pointer = map;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemAllocHost_v2(void **ret_pointer, size_t bytes) {
  return cuMemHostAlloc(ret_pointer, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

static CUresult host_find(void *pointer, struct sim_allocation *ret_allocation) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!sim_memory_find((CUdeviceptr)pointer, ret_allocation) || ret_allocation->kind != CU_MEMORYTYPE_HOST ||
      ret_allocation->mapped)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemFreeHost(void *pointer) {
  struct sim_allocation allocation;
  CUresult result = host_find(pointer, &allocation);
  if (result != CUDA_SUCCESS) return result;
  if (!allocation.owned || allocation.base != (CUdeviceptr)pointer) return CUDA_ERROR_INVALID_VALUE;
  sim_context_wait(allocation.context);
  if (!sim_memory_remove(allocation.base, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  sim_unmap_bytes(pointer, allocation.bytes);
  return sim_waited();
}

SIM_PUBLIC CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
  struct sim_context *context;
  struct sim_allocation allocation;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                   CU_MEMHOSTREGISTER_READ_ONLY;
  if (!pointer || bytes == 0 || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  if (sim_memory_find((CUdeviceptr)pointer, &allocation)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  allocation = (struct sim_allocation){.base = (CUdeviceptr)pointer,
                                       .bytes = bytes,
                                       .context = context,
                                       .kind = CU_MEMORYTYPE_HOST,
                                       .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP};
  return sim_memory_add(&allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuMemHostUnregister(void *pointer) {
  struct sim_allocation allocation;
  CUresult result = host_find(pointer, &allocation);
  if (result == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (result != CUDA_SUCCESS) return result;
  if (allocation.owned || allocation.base != (CUdeviceptr)pointer) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  sim_context_wait(allocation.context);
  return sim_memory_remove(allocation.base, &allocation) ? sim_waited() : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

SIM_PUBLIC CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_pointer, void *pointer, unsigned flags) {
  struct sim_allocation allocation;
  CUresult result = host_find(pointer, &allocation);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pointer || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *ret_pointer = (CUdeviceptr)pointer;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemHostGetFlags(unsigned *ret_flags, void *pointer) {
  struct sim_allocation allocation;
  CUresult result = host_find(pointer, &allocation);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_flags) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = allocation.flags;
  return CUDA_SUCCESS;
}
