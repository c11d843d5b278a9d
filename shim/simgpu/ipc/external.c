/*
 * external.c - memory of other interfaces in use: buffers and arrays in it; and descriptors for other libraries of what
 * lies at an address (dma-buf). Called by programs; builds on alloc/external_memory.c.
 */
#include "simgpu/alloc/external.h"
#include "simgpu/arrays/array.h"
#include "simgpu/contexts/context.h"
#include "simgpu/memory/allocations.h"
#include "simgpu/memory/share.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"

#define PAGE_BYTES 4096ull

static CUresult enter_unsafe(struct sim_context **ret_context) {
  CUresult result = sim_enter(ret_context);
  return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

SIM_PUBLIC CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ret_pointer, CUexternalMemory handle,
                                                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc) {
  struct sim_context *context;
  struct sim_external_map *made;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pointer || !desc || desc->size == 0 || desc->flags) return CUDA_ERROR_INVALID_VALUE;
  result = sim_external_map(handle, desc->offset, desc->size, &made);
  if (result != CUDA_SUCCESS) return result;
  struct sim_allocation allocation = {.base = made->base,
                                      .bytes = desc->size,
                                      .context = context,
                                      .device = context->device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .external = made};
  *ret_pointer = made->base;
  if (sim_memory_add(&allocation)) return CUDA_SUCCESS;
  sim_external_unmap(made);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *ret_mipmap, CUexternalMemory handle,
                                                            const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc) {
  struct sim_context *context;
  struct sim_external_map *made;
  struct sim_array *array;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_mipmap || !desc || desc->arrayDesc.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
    return CUDA_ERROR_INVALID_VALUE;
  result = sim_descriptor_check(context, &desc->arrayDesc, true);
  if (result != CUDA_SUCCESS) return result;
  if (desc->numLevels == 0 || desc->numLevels > sim_levels_max(&desc->arrayDesc)) return CUDA_ERROR_INVALID_VALUE;
  result = sim_external_map(handle, desc->offset, sim_level_offset(&desc->arrayDesc, desc->numLevels), &made);
  if (result != CUDA_SUCCESS) return result;
  result = sim_array_create(&desc->arrayDesc, desc->numLevels, SIM_MIPMAP_MAGIC, made, &array);
  if (result == CUDA_SUCCESS)
    *ret_mipmap = (CUmipmappedArray)array;
  else
    sim_external_unmap(made);
  return result;
}

/* ---- exporting by address ---- */

/* A descriptor holds whole memory; a range that begins inside of it cannot be distinguished from that. */
static CUresult share_range(const struct sim_allocation *allocation, CUdeviceptr address, uint64_t *ret_key) {
  uint64_t base, bytes;
  if (allocation->kind != CU_MEMORYTYPE_DEVICE || allocation->managed || allocation->pool || allocation->imported ||
      allocation->external)
    return CUDA_ERROR_INVALID_VALUE;
  sim_share_unit(allocation, &base, &bytes);
  return address == base ? sim_share_memory(allocation->device, (void *)base, bytes, ret_key)
                         : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_PUBLIC CUresult cuMemGetHandleForAddressRange(void *ret_fd, CUdeviceptr address, size_t bytes,
                                                  CUmemRangeHandleType type, unsigned long long flags) {
  struct sim_context *context;
  struct sim_allocation allocation;
  uint64_t key;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_fd || bytes == 0 || address % PAGE_BYTES || bytes % PAGE_BYTES ||
      type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
      flags & ~(unsigned long long)CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!sim_memory_find(address, &allocation) ||
      bytes > sim_round_up(allocation.base + allocation.bytes - address, PAGE_BYTES))
    return CUDA_ERROR_INVALID_VALUE;
  result = allocation.mapped ? sim_physical_share_at(address, bytes, &key) : share_range(&allocation, address, &key);
  return result == CUDA_SUCCESS ? sim_share_ticket(key, ret_fd) : result;
}
