/*
 * hook_memory_vmm.c - physical memory by handle: cuMemCreate, Release, RetainAllocationHandle, Map, Unmap. Called by
 * programs, any thread.
 *
 * Memory lives until its last handle is released and its last mapping is gone, so both count as references. Only memory
 * on a device is charged; imported handles are unknown here, their maker pays. Multicast objects have handles of this
 * kind, too (hook_memory_multicast.c). References go before the driver's call
 * and come back if it fails: once it has succeeded another thread may be given the same handle or address.
 */
#include "gen/real.h"
#include "hook_memory.h"
#include "memory.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  bool on_device = handle && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  struct vg_device *device = on_device ? vg_context_ordinal(prop->location.id) : NULL;
  if (!device) return REAL(cuMemCreate)(handle, size, prop, flags);
  uint64_t bytes = vg_charge_round(size, vg_charge_granule(device));
  struct vg_record *record = vg_record_new(VG_RECORD_HANDLE, device, NULL);
  if (!record || vg_memory_reserve(device, bytes)) {
    vg_record_free(record);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  record->bytes = bytes;
  record->size = size;
  CUmemGenericAllocationHandle created = 0;
  CUresult result = REAL(cuMemCreate)(&created, size, prop, flags);
  if (result != CUDA_SUCCESS) {
    vg_charge_return(record);
    return result;
  }
  vg_table_put(record, created);
  *handle = created;
  return result;
}

/* One reference less. The record comes back when it was the last one. */
static struct vg_record *drop_reference(CUmemGenericAllocationHandle handle) {
  struct vg_record *last;
  vg_table_add(VG_RECORD_HANDLE, handle, -1, &last);
  return last;
}

static void take_reference_back(CUmemGenericAllocationHandle handle, struct vg_record *last) {
  struct vg_record *unused;
  if (last) {
    last->count = 1;
    vg_table_put(last, handle);
  } else {
    vg_table_add(VG_RECORD_HANDLE, handle, 1, &unused);
  }
}

/* The last reference is gone, at the driver as well. */
static void handle_gone(struct vg_record *last) {
  if (!last->bytes) vg_multicast_gone(last->key);
  vg_charge_return(last);
}

void vg_handle_leave(CUmemGenericAllocationHandle handle) {
  struct vg_record *last = drop_reference(handle);
  if (last) handle_gone(last);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  struct vg_record *last = drop_reference(handle);
  CUresult result = REAL(cuMemRelease)(handle);
  if (result != CUDA_SUCCESS)
    take_reference_back(handle, last);
  else if (last)
    handle_gone(last);
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
  struct vg_record *unused;
  if (result == CUDA_SUCCESS) vg_table_add(VG_RECORD_HANDLE, *handle, 1, &unused);
  return result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  struct vg_record *mapping = vg_record_new(VG_RECORD_MAPPING, NULL, NULL), *unused;
  if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
  mapping->size = size;
  mapping->other = handle;
  /* Before the call: another thread may release the handle once it is mapped. */
  bool known = vg_table_add(VG_RECORD_HANDLE, handle, 1, &unused) != 0;
  CUresult result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
  if (known && result == CUDA_SUCCESS) {
    vg_table_put(mapping, ptr);
    return result;
  }
  vg_record_free(mapping);
  if (known) vg_handle_leave(handle);
  return result;
}

struct unmapped { /* the mappings of a range, taken out of the table, and the handles that they kept alive */
  struct vg_record *mappings;
  struct vg_record *handles;
};

static void take_range(struct unmapped *range, CUdeviceptr ptr, size_t size) {
  *range = (struct unmapped){0};
  for (uint64_t done = 0; done < size;) {
    struct vg_record *mapping = vg_table_take(VG_RECORD_MAPPING, ptr + done);
    if (!mapping || !mapping->size) return; /* imported memory, or the driver will refuse the range */
    done += mapping->size;
    mapping->next = range->mappings;
    range->mappings = mapping;
    struct vg_record *last = drop_reference(mapping->other);
    if (!last) continue;
    last->next = range->handles;
    range->handles = last;
  }
}

static void put_range_back(struct unmapped *range) {
  while (range->mappings) {
    struct vg_record *mapping = range->mappings;
    range->mappings = mapping->next;
    struct vg_record **last = &range->handles;
    while (*last && (*last)->key != mapping->other) last = &(*last)->next;
    struct vg_record *handle = *last;
    if (handle) *last = handle->next;
    take_reference_back(mapping->other, handle);
    vg_table_put(mapping, mapping->key);
  }
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  struct unmapped range;
  take_range(&range, ptr, size);
  CUresult result = REAL(cuMemUnmap)(ptr, size);
  if (result != CUDA_SUCCESS) {
    put_range_back(&range);
    return result;
  }
  for (struct vg_record *mapping = range.mappings, *next; mapping; mapping = next) {
    next = mapping->next;
    vg_record_free(mapping);
  }
  for (struct vg_record *handle = range.handles, *next; handle; handle = next) {
    next = handle->next;
    handle_gone(handle);
  }
  return result;
}
