/*
 * vmm.c - virtual memory management: reserved addresses, physical allocations, maps of one in the other. A physical
 * allocation is charged when it is made and given back when it is released and mapped nowhere; it is a memfd, so that
 * it can lie at several addresses. Nothing is shared between processes (no exportable handles).
 */
#define _GNU_SOURCE
#include "core.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PHYSICAL_MAGIC 0x50485953u

struct physical {
  struct sim_object object;
  CUmemAllocationProp prop;
  int device;
  int fd;
  uint64_t bytes;
  uint32_t references; /* handles given out and maps */
};

struct map { /* of [base, base + bytes) */
  struct map *next;
  CUdeviceptr base;
  uint64_t bytes;
  struct physical *physical;
  unsigned access; /* CU_MEM_ACCESS_FLAGS_* */
};

struct range { /* reserved addresses */
  struct range *next;
  CUdeviceptr base;
  uint64_t bytes;
};

static struct sim_slab physicals = SIM_SLAB(sizeof(struct physical), 1u << 16);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map *maps;
static struct range *ranges;

static bool whole(uint64_t value) {
  return value % SIM_GRANULE_BYTES == 0;
}

static struct physical *find(CUmemGenericAllocationHandle handle) {
  return sim_slab_find(&physicals, (const void *)handle, PHYSICAL_MAGIC);
}

static void drop(struct physical *physical) { /* under lock */
  if (--physical->references > 0) return;
  close(physical->fd);
  sim_memory_refund(physical->device, physical->bytes);
  sim_slab_put(&physicals, physical);
}

static bool within(CUdeviceptr inner, uint64_t inner_bytes, CUdeviceptr outer, uint64_t outer_bytes) {
  return inner >= outer && inner_bytes <= outer_bytes && inner - outer <= outer_bytes - inner_bytes;
}

static CUresult prop_device(const CUmemAllocationProp *prop, struct sim_device **ret_device) {
  if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  *ret_device = sim_device(prop->location.id);
  return *ret_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_PUBLIC CUresult cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
                                                  CUmemAllocationGranularity_flags option) {
  struct sim_device *device;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = prop_device(prop, &device);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_bytes || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  *ret_bytes = SIM_GRANULE_BYTES;
  return CUDA_SUCCESS;
}

/* ---- addresses ---- */

SIM_PUBLIC CUresult cuMemAddressReserve(CUdeviceptr *ret_base, size_t bytes, size_t alignment, CUdeviceptr hint,
                                        unsigned long long flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  (void)hint; /* a wish only */
  if (!ret_base || bytes == 0 || !whole(bytes) || flags != 0 || alignment > SIM_GRANULE_BYTES)
    return CUDA_ERROR_INVALID_VALUE;
  struct range *range = malloc(sizeof *range);
  void *base = sim_map_bytes(bytes);
  if (!range || !base || mprotect(base, bytes, PROT_NONE) < 0) {
    if (base) sim_unmap_bytes(base, bytes);
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_lock(&lock);
  *range = (struct range){ranges, (CUdeviceptr)base, bytes};
  ranges = range;
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  for (struct range **link = &ranges; *link; link = &(*link)->next) {
    struct range *range = *link;
    if (range->base != base || range->bytes != bytes || any_map_within(base, bytes)) continue;
    *link = range->next;
    sim_unmap_bytes((void *)base, bytes);
    free(range);
    result = CUDA_SUCCESS;
    break;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* ---- physical allocations ---- */

static CUresult back(struct physical *physical) {
  physical->fd = vg_prim_memfd("vgpu-sim-memory", false);
  if (physical->fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (ftruncate(physical->fd, (off_t)physical->bytes) == 0) return CUDA_SUCCESS;
  close(physical->fd);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
                                unsigned long long flags) {
  struct sim_device *device;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = prop_device(prop, &device);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || bytes == 0 || !whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  result = sim_memory_charge(device->index, bytes);
  if (result != CUDA_SUCCESS) return result;
  struct physical *physical = sim_slab_get(&physicals, PHYSICAL_MAGIC);
  if (physical) {
    physical->prop = *prop;
    physical->device = device->index;
    physical->bytes = bytes;
    physical->references = 1;
  }
  if (!physical || back(physical) != CUDA_SUCCESS) {
    if (physical) sim_slab_put(&physicals, physical);
    sim_memory_refund(device->index, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *ret_handle = (CUmemGenericAllocationHandle)physical;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct physical *physical = find(handle);
  if (physical) drop(physical);
  pthread_mutex_unlock(&lock);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *ret_prop,
                                                           CUmemGenericAllocationHandle handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct physical *physical = find(handle);
  if (!ret_prop || !physical) return CUDA_ERROR_INVALID_VALUE;
  *ret_prop = physical->prop;
  return CUDA_SUCCESS;
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

static CUresult map_make(CUdeviceptr base, uint64_t bytes, uint64_t offset, struct physical *physical) {
  struct map *map = malloc(sizeof *map);
  void *place =
      map ? mmap((void *)base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->fd, (off_t)offset)
          : MAP_FAILED;
  if (place == MAP_FAILED) {
    free(map);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  madvise(place, bytes, MADV_DONTFORK);
  *map = (struct map){maps, base, bytes, physical, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  maps = map;
  physical->references++;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct physical *physical = find(handle);
  bool valid = physical && flags == 0 && bytes > 0 && whole(base) && whole(bytes) && whole(offset) &&
               within(offset, bytes, 0, physical->bytes) && reserved(base, bytes) && !any_map_within(base, bytes);
  result = valid ? map_make(base, bytes, offset, physical) : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_unlock(&lock);
  return result;
}

static void map_remove(struct map **link) { /* under lock */
  struct map *map = *link;
  struct sim_allocation allocation;
  *link = map->next;
  sim_memory_remove(map->base, &allocation);
  mmap((void *)map->base, map->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  drop(map->physical);
  free(map);
}

SIM_PUBLIC CUresult cuMemUnmap(CUdeviceptr base, size_t bytes) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  uint64_t found = 0;
  pthread_mutex_lock(&lock);
  for (struct map *map = maps; map; map = map->next)
    if (within(map->base, map->bytes, base, bytes)) found += map->bytes;
  for (struct map **link = &maps; found == bytes && *link;) { /* whole maps only */
    if (within((*link)->base, (*link)->bytes, base, bytes))
      map_remove(link);
    else
      link = &(*link)->next;
  }
  pthread_mutex_unlock(&lock);
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
                                       .kind = CU_MEMORYTYPE_DEVICE,
                                       .mapped = true};
  return !access || sim_memory_add(&allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *wanted, size_t count) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!wanted || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t found = 0;
  pthread_mutex_lock(&lock);
  for (struct map *map = maps; map; map = map->next)
    if (within(map->base, map->bytes, base, bytes)) found += map->bytes;
  if (found != bytes) result = CUDA_ERROR_INVALID_VALUE;
  for (struct map *map = maps; map && result == CUDA_SUCCESS; map = map->next)
    if (within(map->base, map->bytes, base, bytes)) result = map_access(map, wanted[0].flags);
  pthread_mutex_unlock(&lock);
  return result;
}

SIM_PUBLIC CUresult cuMemGetAccess(unsigned long long *ret_flags, const CUmemLocation *location, CUdeviceptr address) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct map *map = map_at(address);
  if (map && ret_flags && location) *ret_flags = map->access;
  pthread_mutex_unlock(&lock);
  return map && ret_flags && location ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *address) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct map *map = map_at((CUdeviceptr)address);
  if (map && ret_handle) {
    map->physical->references++;
    *ret_handle = (CUmemGenericAllocationHandle)map->physical;
  }
  pthread_mutex_unlock(&lock);
  return map && ret_handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
