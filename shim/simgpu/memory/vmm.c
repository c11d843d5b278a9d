/*
 * vmm.c - virtual memory management: reserved addresses, and maps of physical memory (vmm_physical.c) in them. A map
 * keeps its memory alive; it is a part of an arena, so that it can lie at several addresses and in several processes.
 */
#define _GNU_SOURCE
#include "simgpu/memory/vmm.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/map.h"
#include "simgpu/process/process.h"
#include <stdlib.h>
#include <sys/mman.h>

struct map { /* of [base, base + bytes) */
  struct map *next;
  CUdeviceptr base;
  uint64_t bytes;
  uint64_t offset; /* in the physical memory */
  struct sim_physical *physical;
  unsigned access; /* CU_MEM_ACCESS_FLAGS_* */
};

struct range { /* reserved addresses */
  struct range *next;
  CUdeviceptr base;
  uint64_t bytes;
};

static struct map *maps;
static struct range *ranges;

static bool within(CUdeviceptr inner, uint64_t inner_bytes, CUdeviceptr outer, uint64_t outer_bytes) {
  return inner >= outer && inner_bytes <= outer_bytes && inner - outer <= outer_bytes - inner_bytes;
}

/* ---- addresses ---- */

SIM_PUBLIC CUresult cuMemAddressReserve(CUdeviceptr *ret_base, size_t bytes, size_t alignment, CUdeviceptr hint,
                                        unsigned long long flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  (void)hint; /* a hint only */
  if (!ret_base || bytes == 0 || !sim_whole(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (alignment < SIM_GRANULE_BYTES) alignment = SIM_GRANULE_BYTES;
  struct range *range = malloc(sizeof *range);
  void *base = sim_reserve_aligned(bytes, alignment, PROT_NONE);
  if (!range || !base) {
    if (base) sim_unmap_bytes(base, bytes);
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  sim_physicals_lock();
  *range = (struct range){ranges, (CUdeviceptr)base, bytes};
  ranges = range;
  sim_physicals_unlock();
  *ret_base = range->base;
  return CUDA_SUCCESS;
}

static bool any_map_within(CUdeviceptr base, uint64_t bytes) { /* under lock */
  for (struct map *map = maps; map; map = map->next)
    if (map->base < base + bytes && base < map->base + map->bytes) return true;
  return false;
}

SIM_PUBLIC CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  result = CUDA_ERROR_INVALID_VALUE;
  sim_physicals_lock();
  for (struct range **link = &ranges; *link; link = &(*link)->next) {
    struct range *range = *link;
    if (range->base != base || range->bytes != bytes || any_map_within(base, bytes)) continue;
    *link = range->next;
    sim_unmap_bytes((void *)base, bytes);
    free(range);
    result = CUDA_SUCCESS;
    break;
  }
  sim_physicals_unlock();
  return result;
}

/* ---- maps ---- */

static bool reserved(CUdeviceptr base, uint64_t bytes) { /* under lock */
  for (struct range *range = ranges; range; range = range->next)
    if (within(base, bytes, range->base, range->bytes)) return true;
  return false;
}

static struct map *map_at(CUdeviceptr address) { /* under lock */
  for (struct map *map = maps; map; map = map->next)
    if (address >= map->base && address - map->base < map->bytes) return map;
  return NULL;
}

struct sim_physical *sim_physical_mapped_at(CUdeviceptr address, uint64_t bytes, uint64_t *ret_offset) {
  struct map *map = map_at(address);
  if (!map || bytes > map->bytes - (address - map->base)) return NULL;
  *ret_offset = map->offset + (address - map->base);
  return map->physical;
}

CUresult sim_physical_share_at(CUdeviceptr address, uint64_t bytes, uint64_t *ret_key) {
  uint64_t offset;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  sim_physicals_lock();
  struct sim_physical *physical = sim_physical_mapped_at(address, bytes, &offset);
  if (physical && !physical->multicast) result = offset ? CUDA_ERROR_NOT_SUPPORTED : sim_physical_share(physical);
  if (result == CUDA_SUCCESS) *ret_key = physical->share.key;
  sim_physicals_unlock();
  return result;
}

static CUresult map_make(CUdeviceptr base, uint64_t bytes, uint64_t offset, struct sim_physical *physical) {
  struct map *map = malloc(sizeof *map);
  if (!map || !sim_arena_place(physical->fd, physical->offset + offset, (void *)base, bytes, PROT_NONE)) {
    free(map);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *map = (struct map){maps, base, bytes, offset, physical, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  maps = map;
  physical->references++;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  sim_physicals_lock();
  struct sim_physical *physical = sim_physical_find(handle);
  bool valid = physical && flags == 0 && bytes > 0 && sim_whole(base) && sim_whole(bytes) && sim_whole(offset) &&
               within(offset, bytes, 0, physical->bytes) && reserved(base, bytes) && !any_map_within(base, bytes);
  result = valid ? map_make(base, bytes, offset, physical) : CUDA_ERROR_INVALID_VALUE;
  sim_physicals_unlock();
  return result;
}

static void map_remove(struct map **link) { /* under lock */
  struct map *map = *link;
  struct sim_allocation allocation;
  *link = map->next;
  sim_memory_remove(map->base, &allocation);
  mmap((void *)map->base, map->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  sim_physical_drop(map->physical);
  free(map);
}

SIM_PUBLIC CUresult cuMemUnmap(CUdeviceptr base, size_t bytes) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  uint64_t found = 0;
  sim_physicals_lock();
  for (struct map *map = maps; map; map = map->next)
    if (within(map->base, map->bytes, base, bytes)) found += map->bytes;
  for (struct map **link = &maps; found == bytes && *link;) { /* whole maps only */
    if (within((*link)->base, (*link)->bytes, base, bytes))
      map_remove(link);
    else
      link = &(*link)->next;
  }
  sim_physicals_unlock();
  return bytes > 0 && found == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Memory is known to copies and kernels once it may be read. */
static CUresult map_access(struct map *map, unsigned access) { /* under lock */
  int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                   : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                : PROT_NONE;
  struct sim_allocation allocation;
  if (mprotect((void *)map->base, map->bytes, protection) < 0) return CUDA_ERROR_INVALID_VALUE;
  if (map->access) sim_memory_remove(map->base, &allocation);
  map->access = access;
  allocation = (struct sim_allocation){.base = map->base,
                                       .bytes = map->bytes,
                                       .device = map->physical->device,
                                       .kind = map->physical->device >= 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                                       .mapped = true,
                                       .is_read_only = access == CU_MEM_ACCESS_FLAGS_PROT_READ};
  return !access || sim_memory_add(&allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *wanted, size_t count) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!wanted || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t found = 0;
  sim_physicals_lock();
  for (struct map *map = maps; map; map = map->next)
    if (within(map->base, map->bytes, base, bytes)) found += map->bytes;
  if (found != bytes) result = CUDA_ERROR_INVALID_VALUE;
  for (struct map *map = maps; map && result == CUDA_SUCCESS; map = map->next)
    if (within(map->base, map->bytes, base, bytes)) result = map_access(map, wanted[0].flags);
  sim_physicals_unlock();
  return result;
}

SIM_PUBLIC CUresult cuMemGetAccess(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  sim_physicals_lock();
  struct map *map = map_at(address);
  if (map && ret_flags && location) *ret_flags = map->access;
  sim_physicals_unlock();
  return map && ret_flags && location ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *address) {
  uint64_t offset;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  sim_physicals_lock();
  struct sim_physical *physical = sim_physical_mapped_at((CUdeviceptr)address, 1, &offset);
  if (physical && ret_handle) {
    physical->references++;
    *ret_handle = (CUmemGenericAllocationHandle)physical;
  }
  sim_physicals_unlock();
  return physical && ret_handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
