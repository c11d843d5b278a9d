/*
 * context_memory.c - device memory of contexts: small requests are packed into granules of 2 MiB (arena/small.c),
 * others take whole ones. Called by the allocating entry points.
 *
 * Device pointers are host addresses: lazily backed, zeroed maps. A forked child does not get them.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/charge.h"
#include "simgpu/arena/map.h"
#include "simgpu/base/strict.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/memory/external_memory.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"

static bool is_small(const struct sim_allocation *allocation) {
  return allocation->bytes < SIM_GRANULE_BYTES && !allocation->low;
}

static CUresult allocate(struct sim_context *context, uint64_t bytes, bool managed, bool low,
                         CUdeviceptr *ret_pointer) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > UINT64_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  struct sim_allocation allocation = {.bytes = bytes,
                                      .context = context,
                                      .device = context->device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .managed = managed,
                                      .low = low};
  allocation.is_paged = managed && !is_small(&allocation);
  char *map = NULL;
  uint64_t rounded = sim_round_up(bytes, SIM_GRANULE_BYTES);
  CUresult result = is_small(&allocation) ? sim_small_alloc(context, context->device, bytes, &allocation.base)
                    : low                 ? sim_map_charged_low(context->device, rounded, &map)
                    : managed             ? sim_map_managed(context->device, rounded, &map)
                                          : sim_map_charged(context->device, rounded, &map);
  if (result != CUDA_SUCCESS) return result;
  if (map) allocation.base = (CUdeviceptr)map;
  if (!sim_memory_add(&allocation)) {
    return CUDA_ERROR_OUT_OF_MEMORY; /* the process's own heap is at its end: nothing works any more */
  }
  *ret_pointer = allocation.base;
  return CUDA_SUCCESS;
}

CUresult sim_memory_alloc(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  return allocate(context, bytes, false, false, ret_pointer);
}

CUresult sim_memory_alloc_managed(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  return allocate(context, bytes, true, false, ret_pointer);
}

CUresult sim_memory_alloc_low(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  return allocate(context, bytes, false, true, ret_pointer);
}

static void give_back(const struct sim_allocation *allocation) {
  if (allocation->external) {
    sim_external_unmap(allocation->external);
    return;
  }
  if (is_small(allocation)) {
    sim_small_free(allocation->base, allocation->bytes, true);
    return;
  }
  uint64_t rounded = sim_round_up(allocation->bytes, SIM_GRANULE_BYTES);
  if (allocation->is_paged)
    sim_unmap_managed(allocation->device, (void *)allocation->base, rounded);
  else
    sim_unmap_charged(allocation->device, (void *)allocation->base, rounded);
}

/* Freeing waits for everything the context has been given, as the driver does. */
CUresult sim_memory_free(struct sim_context *context, CUdeviceptr pointer) {
  struct sim_allocation allocation;
  if (!sim_memory_find(pointer, &allocation) || allocation.base != pointer || allocation.kind != CU_MEMORYTYPE_DEVICE ||
      allocation.mapped || allocation.imported) {
    if (SIM_STRICT) sim_strict_free_refused(pointer);
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim_context_wait(allocation.context ? allocation.context : context);
  if (!sim_memory_remove(pointer, &allocation)) return CUDA_ERROR_INVALID_VALUE; /* another thread was faster */
  give_back(&allocation);
  return sim_waited();
}

void sim_memory_destroy(struct sim_context *context) {
  struct sim_allocation allocation;
  while (sim_memory_of(context, &allocation) && sim_memory_remove(allocation.base, &allocation)) {
    if (allocation.pool)
      sim_pool_take_back(&allocation);
    else if (allocation.kind == CU_MEMORYTYPE_DEVICE)
      give_back(&allocation);
    else if (allocation.owned)
      sim_unmap_bytes((void *)allocation.base, allocation.bytes);
  }
}
