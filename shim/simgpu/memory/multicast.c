/*
 * multicast.c - multicast objects: handles of physical memory's kind that hold what is bound to them on each of their
 * devices. They can be made, bound, mapped and released; what is bound stays alive until it is unbound or the object
 * ends. Not modelled: that a write to a mapped one reaches what is bound (no kernel here does such writes), and handles
 * of them for other processes.
 */
#include "simgpu/arena/map.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/process/process.h"
#include <stdlib.h>

struct binding {
  struct binding *next;
  int device; /* the server's index */
  uint64_t offset, bytes;
  struct sim_physical *physical;
};

struct multicast {
  unsigned wanted; /* devices that take part */
  unsigned added;
  uint64_t devices;           /* a bit for each that was added: the server's index */
  struct sim_physical *space; /* itself, as physical memory */
  struct binding *bindings;
};

static CUresult prop_valid(const CUmulticastObjectProp *prop) {
  if (!prop || prop->numDevices == 0 || prop->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (prop->numDevices > (unsigned)sim_device_count()) return CUDA_ERROR_INVALID_DEVICE;
  return prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_ERROR_NOT_SUPPORTED
                                                                                           : CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMulticastGetGranularity(size_t *ret_bytes, const CUmulticastObjectProp *prop,
                                              CUmulticastGranularity_flags option) {
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = prop_valid(prop);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_bytes || (unsigned)option > CU_MULTICAST_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  *ret_bytes = SIM_GRANULE_BYTES;
  return CUDA_SUCCESS;
}

/* Takes a binding out; what it held may end here. */
static void unbind(struct binding **link) {
  struct binding *binding = *link;
  *link = binding->next;
  sim_physical_drop(binding->physical);
  free(binding);
}

static void multicast_end(void *object) {
  struct multicast *multicast = object;
  while (multicast->bindings) unbind(&multicast->bindings);
  free(multicast);
}

SIM_PUBLIC CUresult cuMulticastCreate(CUmemGenericAllocationHandle *ret_handle, const CUmulticastObjectProp *prop) {
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = prop_valid(prop);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || prop->size == 0 || !sim_whole(prop->size)) return CUDA_ERROR_INVALID_VALUE;
  struct multicast *multicast = calloc(1, sizeof *multicast);
  if (!multicast) return CUDA_ERROR_OUT_OF_MEMORY;
  sim_physicals_lock();
  struct sim_physical *physical = sim_physical_new(prop->size);
  if (physical) {
    *multicast = (struct multicast){.wanted = prop->numDevices, .space = physical};
    physical->offset = sim_arena_take(prop->size);
    physical->multicast = multicast;
    physical->multicast_end = multicast_end;
    *ret_handle = (CUmemGenericAllocationHandle)physical;
  }
  sim_physicals_unlock();
  if (!physical) free(multicast);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct multicast *find(CUmemGenericAllocationHandle handle) { /* under lock */
  struct sim_physical *physical = sim_physical_find(handle);
  return physical ? physical->multicast : NULL;
}

static CUresult add_locked(CUmemGenericAllocationHandle handle, int device) {
  struct multicast *multicast = find(handle);
  if (!multicast || multicast->added == multicast->wanted || multicast->devices >> device & 1)
    return CUDA_ERROR_INVALID_VALUE;
  multicast->devices |= 1ull << device;
  multicast->added++;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  sim_physicals_lock();
  result = add_locked(handle, device->index);
  sim_physicals_unlock();
  return result;
}

/* ---- binding: once all devices are there, each place on each device once ---- */

static bool taken(const struct multicast *multicast, int device, uint64_t offset, uint64_t bytes) {
  for (const struct binding *one = multicast->bindings; one; one = one->next)
    if (one->device == device && one->offset < offset + bytes && offset < one->offset + one->bytes) return true;
  return false;
}

static CUresult bind(struct multicast *multicast, uint64_t offset, struct sim_physical *physical, uint64_t from,
                     uint64_t bytes) {
  if (!multicast || !physical || physical->multicast || bytes == 0 || !sim_whole(bytes) || !sim_whole(offset) ||
      !sim_whole(from) || bytes > physical->bytes || from > physical->bytes - bytes ||
      bytes > multicast->space->bytes || offset > multicast->space->bytes - bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (multicast->added < multicast->wanted || physical->device < 0 || !(multicast->devices >> physical->device & 1) ||
      taken(multicast, physical->device, offset, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  struct binding *binding = malloc(sizeof *binding);
  if (!binding) return CUDA_ERROR_OUT_OF_MEMORY;
  *binding = (struct binding){multicast->bindings, physical->device, offset, bytes, physical};
  multicast->bindings = binding;
  physical->references++;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                       CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                                       unsigned long long flags) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  sim_physicals_lock();
  result = bind(find(handle), offset, sim_physical_find(memory), from, bytes);
  sim_physicals_unlock();
  return result;
}

SIM_PUBLIC CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address,
                                        size_t bytes, unsigned long long flags) {
  uint64_t from = 0;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  sim_physicals_lock();
  struct sim_physical *physical = sim_physical_mapped_at(address, bytes, &from);
  result = bind(find(handle), offset, physical, from, bytes);
  sim_physicals_unlock();
  return result;
}

SIM_PUBLIC CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset,
                                      size_t bytes) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  result = CUDA_ERROR_INVALID_VALUE;
  sim_physicals_lock();
  struct multicast *multicast = find(handle);
  for (struct binding **link = multicast ? &multicast->bindings : NULL; link && *link; link = &(*link)->next) {
    if ((*link)->device != device->index || (*link)->offset != offset || (*link)->bytes != bytes) continue;
    unbind(link);
    result = CUDA_SUCCESS;
    break;
  }
  sim_physicals_unlock();
  return result;
}
