/*
 * vmm.c - physical memory by handle: cuMemCreate, Release, RetainAllocationHandle, Map, Unmap, and handles
 * that go to other processes or come from them. Called by programs, any thread.
 *
 * Memory lives until its last handle is released and its last mapping is gone, so both count as references. Only memory
 * on a device is charged; an imported handle has a record of 0 bytes, since the process that made it pays (which may be
 * this very process: physical.c). Multicast objects have handles of this type, too (multicast.c). References are
 * dropped before the driver's call and restored if it fails: once it has succeeded another thread may be given the same
 * handle or address.
 */
#include "hooks/vmm.h"

#include <pthread.h>

#include "base/prim.h"
#include "context/context.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/charge.h"
#include "hooks/physical.h"
#include "ledger/credit.h"
#include "ledger/granule.h"
#include "moves/movable.h"

#define WAIT_NS (1000 * VG_NS_PER_MS)
#define POLL_NS (VG_NS_PER_MS / 20)

/* The handle of an address is known only once the driver has retained it, and a handle that is not found is certainly
 * not ours only while no handle is released: meanwhile no other thread releases one. Releases share this lock. */
static pthread_rwlock_t retaining = PTHREAD_RWLOCK_INITIALIZER;

/* Bindings and arrays drop their references after the driver's call that ends them: meanwhile no thread is given a new
 * handle, which may have the same value. Calls that make handles share this lock. */
static pthread_rwlock_t ending = PTHREAD_RWLOCK_INITIALIZER;

enum { RETAINING = 1, ENDING = 2 };

/* Gives up after WAIT_NS, so that a program whose driver calls wait for each other does not hang. */
static unsigned enter(pthread_rwlock_t *lock, int (*try)(pthread_rwlock_t *)) {
  uint64_t deadline_ns = 0;
  while (try(lock)) {
    uint64_t now_ns = vg_prim_now_ns();
    if (!deadline_ns) deadline_ns = now_ns + WAIT_NS;
    if (now_ns >= deadline_ns) return 0;
    vg_prim_sleep_until_ns(now_ns + POLL_NS);
  }
  return lock == &retaining ? RETAINING : ENDING;
}

static unsigned begin_let_go(void) {
  return enter(&retaining, pthread_rwlock_tryrdlock);
}

static unsigned begin_retain(void) {
  return enter(&retaining, pthread_rwlock_trywrlock);
}

unsigned vg_handles_begin_end(void) {
  return enter(&ending, pthread_rwlock_trywrlock);
}

unsigned vg_handles_begin_make(void) {
  return enter(&ending, pthread_rwlock_tryrdlock);
}

unsigned vg_handles_begin_alone(void) {
  unsigned entered = begin_retain();
  return entered | vg_handles_begin_end();
}

void vg_handles_done(unsigned entered) {
  if (entered & ENDING) pthread_rwlock_unlock(&ending);
  if (entered & RETAINING) pthread_rwlock_unlock(&retaining);
}

static struct vg_physical *physical_of(const struct vg_record *record) {
  return (struct vg_physical *)(uintptr_t)record->other;
}

/* The error where a reservation fails: OUT_OF_MEMORY, or the driver's own for arguments that it would not take. */
static CUresult refused(size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
  size_t granularity = 1;
  CUresult result = CUDA_SUCCESS;
  if (HAVE(cuMemGetAllocationGranularity))
    result = REAL(cuMemGetAllocationGranularity)(&granularity, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  return !size || size % granularity || flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory that can be exported may come back under another handle. */
static struct vg_record *new_record(struct vg_device *device, uint64_t bytes, const CUmemAllocationProp *prop) {
  struct vg_record *record = vg_record_new(VG_RECORD_HANDLE, device, NULL);
  if (!record) return NULL;
  if (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    record->bytes = bytes;
  } else if (!(record->other = (uintptr_t)vg_physical_new(device, bytes))) {
    vg_record_free(record);
    return NULL;
  }
  return record;
}

/* The last reference is gone, at the driver as well. */
static void handle_gone(struct vg_record *last) {
  if (last->other)
    vg_physical_leave(physical_of(last));
  else if (!last->bytes)
    vg_physical_object_gone(last->key);
  vg_charge_return(last);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  CUmemAllocationProp known; /* a copy, so that we charge what the driver is asked for */
  bool peeked = handle && VG_LOAD(&vg_session.ledger) && vg_prim_peek(&known, prop, sizeof known);
  bool on_device = peeked && known.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  struct vg_device *device = on_device ? vg_context_ordinal(known.location.id) : NULL;
  if (!device) return REAL(cuMemCreate)(handle, size, prop, flags);
  uint64_t bytes = vg_round_up(size, vg_granule_bytes(device));
  if (vg_memory_reserve(device, bytes)) return refused(size, &known, flags);
  struct vg_record *record = new_record(device, bytes, &known);
  if (!record) {
    vg_memory_release(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmemGenericAllocationHandle created = 0;
  unsigned entered = vg_handles_begin_make();
  CUresult result = REAL(cuMemCreate)(&created, size, &known, flags);
  if (result == CUDA_SUCCESS) vg_table_put(record, created);
  vg_handles_done(entered);
  if (result == CUDA_SUCCESS)
    *handle = created;
  else
    handle_gone(record);
  return result;
}

/* Drops a reference. Returns the record if it was the last one. */
static struct vg_record *drop_reference(CUmemGenericAllocationHandle handle) {
  struct vg_record *last;
  vg_table_add(VG_RECORD_HANDLE, handle, -1, &last);
  return last;
}

static void restore_reference(CUmemGenericAllocationHandle handle, struct vg_record *last) {
  if (last) {
    last->count = 1;
    vg_table_put(last, handle);
  } else {
    vg_handle_enter(handle);
  }
}

bool vg_handle_enter(CUmemGenericAllocationHandle handle) {
  struct vg_record *unused;
  return vg_table_add(VG_RECORD_HANDLE, handle, 1, &unused) != 0;
}

void vg_handle_leave(CUmemGenericAllocationHandle handle) {
  struct vg_record *last = drop_reference(handle);
  if (last) handle_gone(last);
}

/* Whether it is the record of a multicast object: then bindings end with it. */
static bool ends_bindings(const struct vg_record *last) {
  return last && !last->bytes && !last->device;
}

CUresult vg_handle_release(CUmemGenericAllocationHandle handle) {
  unsigned entered = begin_let_go();
  struct vg_record *last = drop_reference(handle);
  unsigned bound = ends_bindings(last) ? vg_handles_begin_end() : 0;
  CUresult result = REAL(cuMemRelease)(handle);
  if (result != CUDA_SUCCESS) restore_reference(handle, last);
  vg_handles_done(entered);
  if (result == CUDA_SUCCESS && last) handle_gone(last);
  vg_handles_done(bound);
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return vg_handle_release(handle);
}

CUresult vg_handle_retain(CUmemGenericAllocationHandle *handle, void *addr) {
  if (VG_UNLIKELY(vg_movable_has((CUdeviceptr)addr))) return CUDA_ERROR_INVALID_VALUE;
  unsigned entered = begin_retain();
  CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
  if (result == CUDA_SUCCESS) vg_handle_enter(*handle);
  vg_handles_done(entered);
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  return vg_handle_retain(handle, addr);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (!VG_LOAD(&vg_session.ledger)) return REAL(cuMemMap)(ptr, size, offset, handle, flags);
  struct vg_record *mapping = vg_record_new(VG_RECORD_MAPPING, NULL, NULL);
  if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
  /* Before the call: another thread may release the handle once it is mapped. A handle that is not found is memory of
   * the host, or is being made or released at this moment: it is looked for again while no thread can do either. */
  bool known = vg_handle_enter(handle);
  unsigned alone = known ? 0 : vg_handles_begin_alone();
  if (!known) known = vg_handle_enter(handle);
  CUresult result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
  mapping->size = size;
  mapping->other = known ? handle : 0;
  if (result == CUDA_SUCCESS)
    vg_table_put(mapping, ptr);
  else
    vg_record_free(mapping);
  vg_handles_done(alone);
  if (known && result != CUDA_SUCCESS) vg_handle_leave(handle);
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
    if (!mapping) return; /* the driver will refuse the range */
    done += mapping->size;
    mapping->next = range->mappings;
    range->mappings = mapping;
    struct vg_record *last = mapping->other ? drop_reference(mapping->other) : NULL; /* 0: memory of the host */
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
    if (mapping->other) restore_reference(mapping->other, handle);
    vg_table_put(mapping, mapping->key);
  }
}

static void range_gone(const struct unmapped *range) {
  for (struct vg_record *mapping = range->mappings, *next; mapping; mapping = next) {
    next = mapping->next;
    vg_record_free(mapping);
  }
  for (struct vg_record *handle = range->handles, *next; handle; handle = next) {
    next = handle->next;
    handle_gone(handle);
  }
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  struct unmapped range;
  bool ends = false;
  unsigned entered = begin_let_go();
  take_range(&range, ptr, size);
  for (struct vg_record *handle = range.handles; handle; handle = handle->next) ends |= ends_bindings(handle);
  unsigned bound = ends ? vg_handles_begin_end() : 0;
  CUresult result = REAL(cuMemUnmap)(ptr, size);
  if (result != CUDA_SUCCESS) put_range_back(&range);
  vg_handles_done(entered);
  if (result == CUDA_SUCCESS) range_gone(&range);
  vg_handles_done(bound);
  return result;
}

/* ---- handles for other processes, and from them ---- */

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  struct vg_record known;
  CUresult result = REAL(cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
  bool by_descriptor = handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (result == CUDA_SUCCESS && by_descriptor) vg_prim_set_owner(*(const int *)shareableHandle);
  if (result != CUDA_SUCCESS || !by_descriptor || !vg_handle_enter(handle)) return result;
  if (vg_table_look(VG_RECORD_HANDLE, handle, &known) && known.other)
    vg_physical_exported(physical_of(&known), *(const int *)shareableHandle);
  vg_handle_leave(handle);
  return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (!handle || !VG_LOAD(&vg_session.ledger))
    return REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
  struct vg_physical *own = NULL;
  bool by_descriptor = shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  /* Memory is shared within a user's slices: one of another user would not pay for what it uses. */
  if (by_descriptor && vg_prim_is_foreign((int)(intptr_t)osHandle)) return CUDA_ERROR_NOT_PERMITTED;
  struct vg_record *record = vg_record_new(VG_RECORD_HANDLE, NULL, NULL);
  if (!record || (by_descriptor && !vg_physical_imported((int)(intptr_t)osHandle, &own))) {
    vg_record_free(record);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (own) {
    record->other = (uintptr_t)own;
    record->device = vg_physical_device(own);
  }
  unsigned entered = vg_handles_begin_make();
  CUresult result = REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
  bool fresh = result == CUDA_SUCCESS && vg_table_add_or_put(record, *handle) == 1;
  vg_handles_done(entered);
  if (fresh) return result;
  if (own) vg_physical_leave(own); /* it failed, or the driver has one handle for all */
  vg_record_free(record);
  return result;
}

void vg_handle_forked_child(void) {
  pthread_rwlock_init(&retaining, NULL);
  pthread_rwlock_init(&ending, NULL);
  vg_physical_forked_child();
}
