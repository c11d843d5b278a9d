/*
 * set_bytes.c - the bytes of a memset. Called by copies/set.c and by nodes of graphs.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/backing.h"
#include "simgpu/base/strict.h"
#include "simgpu/copies/bytes.h"
#include "simgpu/process/values.h"
#include <string.h>

CUresult sim_set_bytes(const CUDA_MEMSET_NODE_PARAMS *set) {
  struct sim_allocation allocation;
  if (set->width == 0 || set->height == 0) return CUDA_SUCCESS;
  size_t row = set->width * set->elementSize, pitch = set->height > 1 ? set->pitch : row;
  if (set->dst % set->elementSize || pitch < row) return CUDA_ERROR_INVALID_VALUE;
  size_t extent = pitch * (set->height - 1) + row;
  if (!sim_memory_covers(set->dst, extent, &allocation)) {
    if (SIM_STRICT) sim_strict_range(set->dst, extent);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (allocation.is_read_only) return CUDA_ERROR_INVALID_VALUE;
  uint64_t claimed;
  CUresult result = sim_backing_begin_rows(set->dst, extent, set->height, row, &claimed);
  if (result != CUDA_SUCCESS) return result;
  for (size_t y = 0; y < set->height; y++) {
    char *base = (char *)set->dst + y * pitch;
    if (set->elementSize == 1) memset(base, (int)set->value, set->width);
    for (size_t x = 0; set->elementSize == 2 && x < set->width; x++) ((uint16_t *)base)[x] = (uint16_t)set->value;
    for (size_t x = 0; set->elementSize == 4 && x < set->width; x++) ((uint32_t *)base)[x] = set->value;
  }
  sim_backing_end(claimed);
  sim_values_write(set->dst, extent);
  return CUDA_SUCCESS;
}
