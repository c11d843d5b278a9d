/*
 * hook_memory_multicast.c - multicast objects keep what is bound to them alive: a binding is a reference to physical
 * memory (hook_memory_vmm.c), which ends with its unbinding or with the object. The object itself takes no memory; it
 * has a record of 0 bytes, so that its handles and mappings are counted. Called by programs, any thread.
 *
 * An object of another process is known from the first binding on, as one handle. Memory of a pool is the pool's.
 */
#include <pthread.h>
#include <stdlib.h>

#include "gen/real.h"
#include "hook_memory.h"
#include "prim.h"

struct binding {
  struct binding *next;
  CUmemGenericAllocationHandle object, memory;
  struct vg_device *device;
  uint64_t offset;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct binding *bindings;

static void object_known(struct vg_record *fresh, CUmemGenericAllocationHandle object) {
  struct vg_record known;
  if (vg_table_look(VG_RECORD_HANDLE, object, &known))
    vg_record_free(fresh);
  else
    vg_table_put(fresh, object);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop) {
  struct vg_record *record = vg_record_new(VG_RECORD_HANDLE, NULL, NULL);
  if (!record) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = REAL(cuMulticastCreate)(mcHandle, prop);
  if (result == CUDA_SUCCESS)
    vg_table_put(record, *mcHandle);
  else
    vg_record_free(record);
  return result;
}

/* A binding under way: the memory has one more reference. False: nothing to be kept (or no memory for it). */
static bool begin(struct binding **ret_binding, struct vg_record **ret_object, CUmemGenericAllocationHandle object,
                  CUmemGenericAllocationHandle memory, uint64_t offset) {
  struct vg_record known, *unused;
  if (!vg_table_look(VG_RECORD_HANDLE, memory, &known)) return false;
  *ret_binding = malloc(sizeof **ret_binding);
  *ret_object = vg_record_new(VG_RECORD_HANDLE, NULL, NULL);
  if (!*ret_binding || !*ret_object) {
    free(*ret_binding);
    vg_record_free(*ret_object);
    return false;
  }
  **ret_binding = (struct binding){NULL, object, memory, known.device, offset};
  vg_table_add(VG_RECORD_HANDLE, memory, 1, &unused);
  return true;
}

static CUresult settle(struct binding *binding, struct vg_record *object, CUresult result) {
  if (result == CUDA_SUCCESS) {
    object_known(object, binding->object);
    pthread_mutex_lock(&lock);
    binding->next = bindings;
    bindings = binding;
    pthread_mutex_unlock(&lock);
  } else {
    vg_handle_leave(binding->memory);
    vg_record_free(object);
    free(binding);
  }
  return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
  struct binding *binding;
  struct vg_record *object;
  bool kept = begin(&binding, &object, mcHandle, memHandle, mcOffset);
  CUresult result = REAL(cuMulticastBindMem)(mcHandle, mcOffset, memHandle, memOffset, size, flags);
  return kept ? settle(binding, object, result) : result;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
                             unsigned long long flags) {
  struct binding *binding;
  struct vg_record *object;
  CUmemGenericAllocationHandle memory;
  bool mapped = VG_LOAD(&vg_session.ledger) &&
                REAL(cuMemRetainAllocationHandle)(&memory, (void *)(uintptr_t)memptr) == CUDA_SUCCESS;
  bool kept = mapped && begin(&binding, &object, mcHandle, memory, mcOffset);
  CUresult result = REAL(cuMulticastBindAddr)(mcHandle, mcOffset, memptr, size, flags);
  if (mapped) REAL(cuMemRelease)(memory);
  return kept ? settle(binding, object, result) : result;
}

/* Takes out the first binding of an object, at that place of that device unless device is NULL. */
static struct binding *take(CUmemGenericAllocationHandle object, const struct vg_device *device, uint64_t offset) {
  pthread_mutex_lock(&lock);
  struct binding **link = &bindings;
  while (*link && ((*link)->object != object || (device && ((*link)->device != device || (*link)->offset != offset))))
    link = &(*link)->next;
  struct binding *binding = *link;
  if (binding) *link = binding->next;
  pthread_mutex_unlock(&lock);
  return binding;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size) {
  CUresult result = REAL(cuMulticastUnbind)(mcHandle, dev, mcOffset, size);
  struct vg_device *device = vg_context_ordinal(dev);
  struct binding *binding = result == CUDA_SUCCESS && device ? take(mcHandle, device, mcOffset) : NULL;
  if (binding) vg_handle_leave(binding->memory);
  free(binding);
  return result;
}

void vg_multicast_gone(CUmemGenericAllocationHandle object) {
  for (struct binding *binding; (binding = take(object, NULL, 0)); free(binding)) vg_handle_leave(binding->memory);
}

void vg_multicast_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  bindings = NULL;
}
