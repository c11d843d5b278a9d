/*
 * array_memory.c - what the device is charged for an array, and the end of what is mapped into one. Called by array.c.
 *
 * The rule [assumed, no real device has been measured]: an array, with all its levels and planes, takes whole pages of
 * 64 KiB, which is the unit that memory is mapped into sparse arrays by. From 2 MiB on it takes whole granules. Smaller
 * ones share granules with other arrays of the same context, not with linear memory, first fit; a granule goes back to
 * the device with the last array in it. Sparse arrays and those with deferred mapping take nothing: what is mapped into
 * them belongs to a handle of cuMemCreate.
 */
#include "ledger/array_boxes.h"
#include "simgpu/arena/charge.h"
#include "simgpu/arena/map.h"
#include "simgpu/arrays/array.h"
#include "simgpu/memory/external_memory.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

uint64_t sim_array_round(uint64_t bytes) {
  return sim_round_up(bytes, SIM_ARRAY_PAGE_BYTES);
}

/* To arena/small.c arrays are another owner than the context itself, whose linear memory it packs. */
static const void *owner_of(const struct sim_context *context) {
  return &context->legacy;
}

CUresult sim_array_memory_take(struct sim_array *array) {
  int device = array->context->device;
  if (array->external) {
    array->base = array->external->base;
    return CUDA_SUCCESS;
  }
  if (array->bytes < SIM_GRANULE_BYTES && !array->unbacked)
    return sim_small_alloc(owner_of(array->context), device, array->bytes, &array->base);
  char *map = NULL;
  if (array->unbacked)
    map = sim_map_bytes(array->bytes);
  else if (sim_map_charged(device, sim_round_up(array->bytes, SIM_GRANULE_BYTES), &map) != CUDA_SUCCESS)
    return CUDA_ERROR_OUT_OF_MEMORY;
  array->base = (CUdeviceptr)map;
  return map ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_array_memory_give(struct sim_array *array) {
  if (array->external) {
    sim_external_unmap(array->external);
  } else if (array->unbacked) {
    sim_unmap_bytes((void *)array->base, array->bytes);
  } else if (array->bytes < SIM_GRANULE_BYTES) {
    sim_small_free(array->base, array->bytes, true);
  } else {
    sim_unmap_charged(array->context->device, (void *)array->base, sim_round_up(array->bytes, SIM_GRANULE_BYTES));
  }
}

void sim_array_count_map(uint64_t handle, int delta) {
  struct sim_physical *physical = sim_physical_find(handle);
  if (delta > 0)
    physical->references++;
  else
    sim_physical_drop(physical);
}

void sim_array_unmap_all(struct sim_array *array) {
  struct vg_box *boxes = array->maps;
  sim_physicals_lock();
  vg_boxes_clear(&boxes, sim_array_count_map);
  sim_physicals_unlock();
  array->maps = NULL;
}
