/*
 * multicast.c - multicast objects keep what is bound to them alive: a binding is a reference to physical
 * memory (vmm.c), which ends with its unbinding or with the object. The object itself takes no memory; it
 * has a record of 0 bytes, so that its handles and mappings are counted. Called by programs, any thread.
 *
 * Memory of a pool is the pool's.
 */
#include "hooks/multicast.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/prim.h"
#include "context/context.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/physical.h"
#include "hooks/vmm.h"
#include "ledger/records.h"
#include "moves/movable.h"

struct binding {
  struct binding *next;
  uint64_t object; /* address of its struct vg_physical; of another process's object the handle */
  CUmemGenericAllocationHandle memory;
  struct vg_device *device;
  uint64_t offset;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct binding *bindings;

static uint64_t object_of(CUmemGenericAllocationHandle handle) {
  struct vg_record known;
  return vg_table_look(VG_RECORD_HANDLE, handle, &known) && known.other ? known.other : handle;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop) {
  struct vg_record *record = vg_record_new(VG_RECORD_HANDLE, NULL, NULL);
  struct vg_physical *object = record ? vg_physical_new(NULL, 0) : NULL;
  if (object) record->other = (uintptr_t)object;
  unsigned entered = vg_handles_begin_make();
  CUresult result = object ? REAL(cuMulticastCreate)(mcHandle, prop) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) vg_table_put(record, *mcHandle);
  vg_handles_done(entered);
  if (result == CUDA_SUCCESS) return result;
  if (object) vg_physical_leave(object);
  vg_record_free(record);
  return result;
}

/* A binding under way: the memory has one more reference. NULL: no reference is needed, or out of memory. */
static struct binding *begin(CUmemGenericAllocationHandle object, CUmemGenericAllocationHandle memory,
                             uint64_t offset) {
  struct vg_record known;
  if (!vg_handle_enter(memory)) return NULL;
  bool charged = vg_table_look(VG_RECORD_HANDLE, memory, &known) && known.device;
  struct binding *binding = charged ? malloc(sizeof *binding) : NULL;
  if (!binding) {
    vg_handle_leave(memory);
    return NULL;
  }
  *binding = (struct binding){NULL, object_of(object), memory, known.device, offset};
  return binding;
}

/* Takes the first binding of an object out of the list; unless device is NULL, only that of device at offset. */
static struct binding *take(uint64_t object, const struct vg_device *device, uint64_t offset) {
  pthread_mutex_lock(&lock);
  struct binding **link = &bindings;
  while (*link && ((*link)->object != object || (device && ((*link)->device != device || (*link)->offset != offset))))
    link = &(*link)->next;
  struct binding *binding = *link;
  if (binding) *link = binding->next;
  pthread_mutex_unlock(&lock);
  return binding;
}

static void end_bindings(uint64_t object) {
  for (struct binding *binding; (binding = take(object, NULL, 0)); free(binding)) vg_handle_leave(binding->memory);
}

static CUresult settle(struct binding *binding, CUresult result) {
  if (!binding) return result;
  if (result == CUDA_SUCCESS) {
    vg_physical_on_object_gone(end_bindings);
    pthread_mutex_lock(&lock);
    binding->next = bindings;
    bindings = binding;
    pthread_mutex_unlock(&lock);
  } else {
    vg_handle_leave(binding->memory);
    free(binding);
  }
  return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
  struct binding *binding = begin(mcHandle, memHandle, mcOffset);
  return settle(binding, REAL(cuMulticastBindMem)(mcHandle, mcOffset, memHandle, memOffset, size, flags));
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
                             unsigned long long flags) {
  CUmemGenericAllocationHandle memory;
  if (VG_UNLIKELY(vg_movable_has(memptr))) return CUDA_ERROR_INVALID_VALUE; /* as memory of cuMemAlloc */
  bool mapped = VG_LOAD(&vg_session.ledger) && vg_handle_retain(&memory, (void *)(uintptr_t)memptr) == CUDA_SUCCESS;
  struct binding *binding = mapped ? begin(mcHandle, memory, mcOffset) : NULL;
  CUresult result = settle(binding, REAL(cuMulticastBindAddr)(mcHandle, mcOffset, memptr, size, flags));
  if (mapped) vg_handle_release(memory);
  return result;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size) {
  unsigned entered = vg_handles_begin_end();
  CUresult result = REAL(cuMulticastUnbind)(mcHandle, dev, mcOffset, size);
  struct vg_device *device = vg_context_ordinal(dev);
  struct binding *binding = result == CUDA_SUCCESS && device ? take(object_of(mcHandle), device, mcOffset) : NULL;
  if (binding) vg_handle_leave(binding->memory);
  vg_handles_done(entered);
  free(binding);
  return result;
}

void vg_multicast_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  bindings = NULL;
}
