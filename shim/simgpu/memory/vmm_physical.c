/*
 * vmm_physical.c - physical memory by handle: made, released, exported to other processes and imported from them. It is
 * charged when it is made, if it lies on a device, and given back when it is released, mapped and bound nowhere.
 */
#include "simgpu/arena/backing.h"
#include "simgpu/arena/charge.h"
#include "simgpu/arena/map.h"
#include "simgpu/arena/share.h"
#include "simgpu/base/slab.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <unistd.h>

#define PHYSICAL_MAGIC 0x50485953u
#define HANDLE_TYPES (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) /* those that can be asked for */

static struct sim_slab physicals = SIM_SLAB(sizeof(struct sim_physical), 1u << 16);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_physicals_lock(void) {
  pthread_mutex_lock(&lock);
}

void sim_physicals_unlock(void) {
  pthread_mutex_unlock(&lock);
}

bool sim_whole(uint64_t bytes) {
  return bytes % SIM_GRANULE_BYTES == 0;
}

struct sim_physical *sim_physical_find(CUmemGenericAllocationHandle handle) {
  return sim_slab_find(&physicals, (const void *)handle, PHYSICAL_MAGIC);
}

struct sim_physical *sim_physical_new(uint64_t bytes) {
  struct sim_physical *physical = sim_slab_get(&physicals, PHYSICAL_MAGIC);
  if (!physical) return NULL;
  physical->bytes = bytes;
  physical->references = 1;
  physical->fd = sim_arena_fd();
  physical->device = -1;
  return physical;
}

void sim_physical_drop(struct sim_physical *physical) {
  if (--physical->references > 0) return;
  if (physical->multicast) physical->multicast_end(physical->multicast);
  if (physical->share.key) {
    sim_share_close(&physical->share);
  } else {
    sim_backing_drop(physical->fd, physical->offset, physical->bytes);
    if (physical->device >= 0) sim_memory_refund(physical->device, physical->bytes);
  }
  if (physical->imported) close(physical->fd);
  sim_slab_put(&physicals, physical);
}

static bool on_host(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* *ret_device: the server's index, -1 for memory of the host. */
static CUresult prop_device(const CUmemAllocationProp *prop, int *ret_device) {
  if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if ((unsigned)prop->requestedHandleTypes & ~(unsigned)HANDLE_TYPES) return CUDA_ERROR_NOT_SUPPORTED;
  *ret_device = -1;
  if (on_host(prop->location.type))
    return prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop->location.id != 0 ? CUDA_ERROR_INVALID_DEVICE
                                                                                           : CUDA_SUCCESS;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  struct sim_device *device = sim_device(prop->location.id);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *ret_device = device->index;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
                                                  CUmemAllocationGranularity_flags option) {
  int device;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = prop_device(prop, &device);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_bytes || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  *ret_bytes = SIM_GRANULE_BYTES;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
                                unsigned long long flags) {
  int device;
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = prop_device(prop, &device);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || bytes == 0 || !sim_whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > UINT64_MAX / 4 || sim_arena_fd() < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (device >= 0) result = sim_memory_charge(device, bytes);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct sim_physical *physical = sim_physical_new(bytes);
  if (physical) {
    physical->prop = *prop;
    physical->device = device;
    physical->offset = sim_arena_take(bytes);
  }
  pthread_mutex_unlock(&lock);
  if (!physical) {
    if (device >= 0) sim_memory_refund(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *ret_handle = (CUmemGenericAllocationHandle)physical;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct sim_physical *physical = sim_physical_find(handle);
  if (physical) sim_physical_drop(physical);
  pthread_mutex_unlock(&lock);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *ret_prop,
                                                           CUmemGenericAllocationHandle handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_physical *physical = sim_physical_find(handle);
  if (!ret_prop || !physical || physical->multicast) return CUDA_ERROR_INVALID_VALUE;
  *ret_prop = physical->prop;
  return CUDA_SUCCESS;
}

/* ---- between processes: a descriptor holds the memory as a handle does, until its last copy is closed ---- */

/* What an importer learns of the properties: where, and what it may be exported as. */
static uint64_t tag_of(const CUmemAllocationProp *prop) {
  return (uint64_t)prop->location.type | (uint64_t)prop->requestedHandleTypes << 32;
}

CUresult sim_physical_share(struct sim_physical *physical) {
  if (physical->share.key) return CUDA_SUCCESS;
  physical->share = (struct sim_share){.kind = SIM_SHARE_PHYSICAL,
                                       .device = physical->device >= 0 ? physical->device : 0,
                                       .charged = physical->device >= 0,
                                       .bytes = physical->bytes,
                                       .offset = physical->offset,
                                       .tag = tag_of(&physical->prop)};
  return sim_share_make(&physical->share);
}

SIM_PUBLIC CUresult cuMemExportToShareableHandle(void *ret_handle, CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type, unsigned long long flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct sim_physical *physical = sim_physical_find(handle);
  if (!physical || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !((unsigned)physical->prop.requestedHandleTypes & (unsigned)type))
    result = CUDA_ERROR_INVALID_VALUE;
  else if (physical->multicast)
    result = CUDA_ERROR_NOT_SUPPORTED;
  else
    result = sim_physical_share(physical);
  if (result == CUDA_SUCCESS) result = sim_share_ticket(physical->share.key, ret_handle);
  pthread_mutex_unlock(&lock);
  return result;
}

/* What this process calls the server's device; -1: it does not see it. */
static int ordinal_of(int index) {
  for (int i = 0; i < sim_device_count(); i++)
    if (sim_device(i)->index == index) return i;
  return -1;
}

/* A handle of its own for each import. The descriptor stays the caller's. */
SIM_PUBLIC CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *shareable,
                                                   CUmemAllocationHandleType type) {
  struct sim_share opened;
  uint64_t key;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!sim_share_ticket_key((int)(intptr_t)shareable, &key)) return CUDA_ERROR_INVALID_VALUE;
  result = sim_share_open(key, SIM_SHARE_PHYSICAL, &opened);
  if (result != CUDA_SUCCESS) return result;
  int ordinal = opened.charged ? ordinal_of(opened.device) : 0;
  pthread_mutex_lock(&lock);
  struct sim_physical *physical = ordinal >= 0 ? sim_physical_new(opened.bytes) : NULL;
  if (physical) {
    physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->prop.location.type = (CUmemLocationType)(uint32_t)opened.tag;
    physical->prop.location.id = ordinal;
    physical->prop.requestedHandleTypes = (CUmemAllocationHandleType)(opened.tag >> 32);
    physical->device = opened.charged ? opened.device : -1;
    physical->offset = opened.offset;
    physical->fd = opened.fd;
    physical->imported = true;
    physical->share = opened;
    *ret_handle = (CUmemGenericAllocationHandle)physical;
  }
  pthread_mutex_unlock(&lock);
  if (physical) return CUDA_SUCCESS;
  sim_share_close(&opened);
  close(opened.fd);
  return ordinal < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_OUT_OF_MEMORY;
}
