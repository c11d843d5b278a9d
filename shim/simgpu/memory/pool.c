/*
 * pool.c - stream-ordered allocation in a plain form: a pool keeps what is freed, up to its release threshold, which is
 * applied at synchronisations. Memory that was freed can be taken again at once, because effects on memory are in
 * program order. Each device has a pool of its own, and each place has one for managed memory; those live as long as
 * the process. Managed memory takes device memory in full, as that of cuMemAllocManaged does.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/charge.h"
#include "simgpu/arena/share.h"
#include "simgpu/base/slab.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include <pthread.h>
#include <stdlib.h>

#define POOL_MAGIC 0x504f4f4cu

struct block { /* whole granules that the pool keeps for later */
  struct block *next;
  char *map;
  uint64_t bytes;
};

#define PLACE_NONE SIM_DEVICES_MAX /* managed memory that prefers no place */
#define PLACE_HOST (SIM_DEVICES_MAX + 1)
#define PLACES (SIM_DEVICES_MAX + 2)

struct place {
  bool managed;
  int index;  /* a device's, or PLACE_NONE, PLACE_HOST */
  int device; /* whose memory is taken */
};

struct sim_pool {
  struct sim_object object;
  struct place place;
  bool ended; /* destroyed, but something of it is still in use */
  CUmemPoolProps props;
  struct block *kept;
  uint64_t blocks_bytes; /* granules of large requests, kept ones included */
  uint64_t used_bytes;
  uint64_t used_high, reserved_high;
  uint64_t threshold_bytes;
  int reuse[3]; /* kept and answered */
  struct sim_pool_sharing sharing;
};

static struct sim_slab pools = SIM_SLAB(sizeof(struct sim_pool), 1024);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_pool *defaults[2][PLACES]; /* of pinned memory, of managed memory */
static struct sim_pool *current[2][PLACES];  /* NULL: the default one */

static struct sim_pool *find(CUmemoryPool handle) {
  struct sim_pool *pool = sim_slab_find(&pools, handle, POOL_MAGIC);
  return pool && !pool->ended ? pool : NULL;
}

static uint64_t reserved(const struct sim_pool *pool) {
  return pool->blocks_bytes + sim_small_bytes(pool);
}

static struct place on_device(int device) {
  return (struct place){.index = device, .device = device};
}

static CUresult place_of(const CUmemLocation *location, CUmemAllocationType type, struct place *ret_place) {
  bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (!location || (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED)) return CUDA_ERROR_INVALID_VALUE;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    const struct sim_device *device = sim_device(location->id);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    *ret_place = on_device(device->index);
    ret_place->managed = managed;
    return CUDA_SUCCESS;
  }
  bool host = location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (!host && (!managed || location->type != CU_MEM_LOCATION_TYPE_NONE)) return CUDA_ERROR_INVALID_VALUE;
  if (!managed) return CUDA_ERROR_NOT_SUPPORTED;
  *ret_place = (struct place){.managed = true,
                              .index = host ? PLACE_HOST : PLACE_NONE,
                              .device = sim_current ? sim_current->device : sim_device(0)->index};
  return CUDA_SUCCESS;
}

static struct sim_pool *pool_make(struct place place) {
  struct sim_pool *pool = sim_slab_get(&pools, POOL_MAGIC);
  if (!pool) return NULL;
  pool->place = place;
  pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
  return pool;
}

static struct sim_pool *default_of(struct place place) {
  pthread_mutex_lock(&lock);
  struct sim_pool **pool = &defaults[place.managed][place.index];
  if (!*pool && (*pool = pool_make(place))) (*pool)->object.inner = true;
  pthread_mutex_unlock(&lock);
  return *pool;
}

static struct sim_pool *current_of(struct place place) {
  struct sim_pool *pool = current[place.managed][place.index];
  return pool ? pool : default_of(place);
}

/* Gives kept memory back until no more than keep_bytes are reserved. Under lock. */
static void trim(struct sim_pool *pool, uint64_t keep_bytes) {
  for (struct block **link = &pool->kept; *link && reserved(pool) > keep_bytes;) {
    struct block *block = *link;
    *link = block->next;
    pool->blocks_bytes -= block->bytes;
    sim_unmap_charged(pool->place.device, block->map, block->bytes);
    free(block);
  }
  uint64_t held = reserved(pool);
  if (held > keep_bytes) sim_small_trim(pool, held - keep_bytes);
}

/* At synchronisations: down to the release threshold. */
static void trim_all(struct sim_context *context) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < pools.used; i++) {
    struct sim_pool *pool = (struct sim_pool *)(pools.base + (size_t)i * pools.object_bytes);
    if (pool->object.magic != POOL_MAGIC || pool->place.device != context->device) continue;
    trim(pool, pool->threshold_bytes);
    if (pool->ended && pool->used_bytes == 0) sim_slab_put(&pools, pool);
  }
  pthread_mutex_unlock(&lock);
}

/* A kept block of exactly that size. Under lock. */
static char *take_kept(struct sim_pool *pool, uint64_t bytes) {
  for (struct block **link = &pool->kept; *link; link = &(*link)->next) {
    struct block *block = *link;
    if (block->bytes != bytes) continue;
    char *map = block->map;
    *link = block->next;
    free(block);
    return map;
  }
  return NULL;
}

static CUresult take(struct sim_pool *pool, uint64_t bytes, CUdeviceptr *ret_pointer) {
  if (bytes < SIM_GRANULE_BYTES) return sim_small_alloc(pool, pool->place.device, bytes, ret_pointer);
  uint64_t rounded = sim_round_up(bytes, SIM_GRANULE_BYTES);
  char *map = take_kept(pool, rounded);
  if (!map) {
    CUresult result = sim_map_charged(pool->place.device, rounded, &map);
    if (result != CUDA_SUCCESS) return result;
    pool->blocks_bytes += rounded;
  }
  *ret_pointer = (CUdeviceptr)map;
  return CUDA_SUCCESS;
}

static uint64_t counted(uint64_t bytes) {
  return sim_round_up(bytes, SIM_SMALL_ALIGN_BYTES);
}

static CUresult alloc(struct sim_pool *pool, struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > UINT64_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  sim_wait_hook_set(trim_all); /* before, no pool holds anything */
  CUresult result =
      pool->props.maxSize && pool->used_bytes + bytes > pool->props.maxSize ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = take(pool, bytes, ret_pointer);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && pool->kept) {
    trim(pool, 0);
    result = take(pool, bytes, ret_pointer);
  }
  if (result == CUDA_SUCCESS) {
    pool->used_bytes += counted(bytes);
    if (pool->used_bytes > pool->used_high) pool->used_high = pool->used_bytes;
    if (reserved(pool) > pool->reserved_high) pool->reserved_high = reserved(pool);
  }
  pthread_mutex_unlock(&lock);
  if (result != CUDA_SUCCESS) return result;
  struct sim_allocation allocation = {.base = *ret_pointer,
                                      .bytes = bytes,
                                      .context = context,
                                      .device = pool->place.device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .managed = pool->place.managed,
                                      .pool = (CUmemoryPool)pool};
  return sim_memory_add(&allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_pool_alloc(CUmemoryPool handle, struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  struct sim_pool *pool = handle ? find(handle) : current_of(on_device(context->device));
  return pool ? alloc(pool, context, bytes, ret_pointer) : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_pool_take_back(const struct sim_allocation *allocation) {
  struct sim_pool *pool = sim_slab_find(&pools, allocation->pool, POOL_MAGIC);
  struct block *block;
  if (allocation->imported) {
    sim_pool_import_end(allocation->base);
    return;
  }
  if (!pool) return;
  pthread_mutex_lock(&lock);
  pool->used_bytes -= counted(allocation->bytes);
  if (allocation->bytes < SIM_GRANULE_BYTES) {
    sim_small_free(allocation->base, allocation->bytes, false);
  } else if ((block = malloc(sizeof *block))) {
    *block = (struct block){pool->kept, (char *)allocation->base, sim_round_up(allocation->bytes, SIM_GRANULE_BYTES)};
    pool->kept = block;
  }
  pthread_mutex_unlock(&lock);
}

bool sim_pool_free(CUdeviceptr pointer) {
  struct sim_allocation allocation;
  if (!sim_memory_remove(pointer, &allocation)) return false;
  sim_pool_take_back(&allocation);
  return true;
}

/* ---- entry points ---- */

static CUresult pool_of(CUmemoryPool *ret_pool, const CUmemLocation *location, CUmemAllocationType type,
                        struct sim_pool *(*which)(struct place)) {
  struct place place;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS && !ret_pool) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = place_of(location, type, &place);
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = which(place);
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  *ret_pool = (CUmemoryPool)pool;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemGetDefaultMemPool(CUmemoryPool *ret_pool, CUmemLocation *location, CUmemAllocationType type) {
  return pool_of(ret_pool, location, type, default_of);
}

SIM_PUBLIC CUresult cuMemGetMemPool(CUmemoryPool *ret_pool, CUmemLocation *location, CUmemAllocationType type) {
  return pool_of(ret_pool, location, type, current_of);
}

SIM_PUBLIC CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle) {
  struct place place;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = place_of(location, type, &place);
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = find(handle);
  if (!pool || pool->place.managed != place.managed || pool->place.index != place.index || pool->sharing.imported)
    return CUDA_ERROR_INVALID_VALUE;
  current[place.managed][place.index] = pool;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *ret_pool, CUdevice ordinal) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return cuMemGetDefaultMemPool(ret_pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

SIM_PUBLIC CUresult cuDeviceGetMemPool(CUmemoryPool *ret_pool, CUdevice ordinal) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return cuMemGetMemPool(ret_pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

SIM_PUBLIC CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, handle);
}

SIM_PUBLIC CUresult cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pool || !props) return CUDA_ERROR_INVALID_VALUE;
  if ((unsigned)props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct place place;
  result = place_of(&props->location, props->allocType, &place);
  if (result == CUDA_SUCCESS && place.managed && props->handleTypes) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = pool_make(place);
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->props = *props;
  pool->sharing.exportable = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  *ret_pool = (CUmemoryPool)pool;
  return CUDA_SUCCESS;
}

struct sim_pool_sharing *sim_pool_sharing(CUmemoryPool handle, int *ret_device) {
  struct sim_pool *pool = find(handle);
  if (pool) *ret_device = pool->place.device;
  return pool ? &pool->sharing : NULL;
}

CUmemoryPool sim_pool_import(const struct sim_share *share) {
  struct sim_pool *pool = pool_make(on_device(share->device));
  if (!pool) return NULL;
  pool->sharing = (struct sim_pool_sharing){.share = *share, .imported = true};
  return (CUmemoryPool)pool;
}

/* What is still allocated from the pool stays valid: the pool ends with its last allocation. */
SIM_PUBLIC CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe(); /* memory may go back to the device */
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = find(handle);
  if (!pool || pool->object.inner) return CUDA_ERROR_INVALID_VALUE;
  sim_pool_unshare(&pool->sharing);
  pthread_mutex_lock(&lock);
  trim(pool, 0);
  pool->threshold_bytes = 0;
  struct sim_pool **now = &current[pool->place.managed][pool->place.index];
  if (*now == pool) *now = NULL;
  pool->ended = true;
  if (pool->used_bytes == 0) sim_slab_put(&pools, pool);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe(); /* memory may go back to the device */
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = find(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  trim(pool, keep_bytes);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *ret_value) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = find(handle);
  if (!pool || !ret_value) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES && attribute >= 1)
    *(int *)ret_value = pool->reuse[attribute - 1];
  else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    *(cuuint64_t *)ret_value = pool->threshold_bytes;
  else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    *(cuuint64_t *)ret_value = reserved(pool);
  else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
    *(cuuint64_t *)ret_value = pool->reserved_high;
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    *(cuuint64_t *)ret_value = pool->used_bytes;
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    *(cuuint64_t *)ret_value = pool->used_high;
  else
    result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_unlock(&lock);
  return result;
}

SIM_PUBLIC CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_pool *pool = find(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES && attribute >= 1)
    pool->reuse[attribute - 1] = *(int *)value;
  else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    pool->threshold_bytes = *(cuuint64_t *)value;
  else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && *(cuuint64_t *)value == 0)
    pool->reserved_high = reserved(pool);
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && *(cuuint64_t *)value == 0)
    pool->used_high = pool->used_bytes;
  else
    result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_unlock(&lock);
  return result;
}

/* Every device of the process reads every pool: device pointers are addresses of the process. */
SIM_PUBLIC CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  return find(handle) && (map || count == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuMemPoolGetAccess(CUmemAccess_flags *ret_flags, CUmemoryPool handle, CUmemLocation *location) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_flags || !location || !find(handle)) return CUDA_ERROR_INVALID_VALUE;
  *ret_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}
