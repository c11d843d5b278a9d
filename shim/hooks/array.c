/*
 * array.c - arrays and mipmapped arrays. Called by programs, any thread.
 *
 * Arrays have no address from which their place could be read: the driver is asked for their size (array_size.c).
 * Arrays of a granule and more are charged by whole granules. In the driver, smaller ones share granules of their
 * context, in steps of 64 KiB, first fit; the same is done here with bits, and the ledger is charged the granules that
 * are in use. `order` is held across these driver calls, so that the device places and frees small arrays in the same
 * order as this file.
 */
#include "hooks/array.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/prim.h"
#include "context/context.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/array_size.h"
#include "hooks/charge.h"
#include "hooks/sparse.h"
#include "hooks/vmm.h"
#include "ledger/credit.h"
#include "ledger/granule.h"

#define PAGES_MAX 64 /* of a granule: bits of a word */
#define ORDER_DEADLINE_NS (1000 * VG_NS_PER_MS)
#define ORDER_POLL_NS (VG_NS_PER_MS / 20)

struct granule { /* of a context; shared by small arrays */
  struct granule *next;
  CUcontext context;
  struct vg_device *device;
  uint64_t pages; /* taken */
};

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list; never held across a driver call */
static struct granule *granules;

/* ---- small arrays ---- */

static uint64_t pages_of(uint64_t bytes) { /* as bits */
  uint64_t count = bytes / VG_ARRAY_PAGE_BYTES;
  return count < PAGES_MAX ? (1ull << count) - 1 : UINT64_MAX;
}

/* Gives up after ORDER_DEADLINE_NS, so that a program whose calls wait for each other does not hang; then places may be
 * wrong. */
static bool enter_order(void) {
  uint64_t deadline_ns = vg_prim_now_ns() + ORDER_DEADLINE_NS;
  while (pthread_mutex_trylock(&order)) {
    uint64_t now_ns = vg_prim_now_ns();
    if (now_ns >= deadline_ns) return false;
    vg_prim_sleep_until_ns(now_ns + ORDER_POLL_NS);
  }
  return true;
}

static void leave_order(bool entered) {
  if (entered) pthread_mutex_unlock(&order);
}

/* Takes the first place of record->size bytes, as bits `wanted`. False: no granule has one. Under lock. */
static bool place(struct vg_record *record, uint64_t wanted) {
  unsigned granule_pages = (unsigned)(vg_granule_bytes(record->device) / VG_ARRAY_PAGE_BYTES);
  if (granule_pages > PAGES_MAX) granule_pages = PAGES_MAX;
  unsigned count = (unsigned)(record->size / VG_ARRAY_PAGE_BYTES);
  for (struct granule *granule = granules; granule; granule = granule->next) {
    if (granule->context != record->context || granule->device != record->device) continue;
    for (unsigned first = 0; first + count <= granule_pages; first++) {
      if (granule->pages & wanted << first) continue;
      granule->pages |= wanted << first;
      record->other = (uint64_t)(uintptr_t)granule;
      record->count = first;
      return true;
    }
  }
  return false;
}

static bool add_granule(const struct vg_record *record) {
  struct granule *granule = calloc(1, sizeof *granule);
  if (!granule) return false;
  granule->context = record->context;
  granule->device = record->device;
  pthread_mutex_lock(&lock);
  struct granule **end = &granules;
  while (*end) end = &(*end)->next;
  *end = granule;
  pthread_mutex_unlock(&lock);
  return true;
}

/* Under order. */
static bool add_small(struct vg_record *record) {
  uint64_t wanted = pages_of(record->size), granule_bytes = vg_granule_bytes(record->device);
  for (bool more = false;; more = true) {
    pthread_mutex_lock(&lock);
    bool placed = place(record, wanted);
    pthread_mutex_unlock(&lock);
    if (placed || more) return placed;
    if (vg_memory_reserve(record->device, granule_bytes)) return false;
    if (add_granule(record)) continue;
    vg_memory_release(record->device, granule_bytes);
    return false;
  }
}

/* Of an array that is not charged by itself: gives up its place in a granule, or the memory mapped into it. */
static void leave_place(const struct vg_record *record) {
  struct granule *granule = (struct granule *)(uintptr_t)record->other;
  if (!granule) { /* it has no memory of its own */
    vg_sparse_gone(record->key);
    return;
  }
  pthread_mutex_lock(&lock);
  granule->pages &= ~(pages_of(record->size) << record->count);
  bool empty = granule->pages == 0;
  for (struct granule **link = &granules; empty && *link; link = &(*link)->next) {
    if (*link != granule) continue;
    *link = granule->next;
    free(granule);
    break;
  }
  pthread_mutex_unlock(&lock);
  if (empty) vg_memory_release(record->device, vg_granule_bytes(record->device));
}

void vg_array_return(struct vg_record *record) {
  if (!record->bytes) leave_place(record);
  vg_charge_return(record);
}

/* ---- reserve, commit, roll back ---- */

struct making {
  struct vg_record *record; /* NULL: nothing is to be accounted */
  bool ordered;
};

static bool begin(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels, struct making *making) {
  CUcontext context;
  struct vg_device *device = descriptor ? vg_context_current(&context) : NULL;
  uint64_t bytes = device ? vg_array_bytes(descriptor, levels) : 0;
  bool unbacked = device && descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
  *making = (struct making){0};
  if (!bytes && !unbacked) return true;
  struct vg_record *record = vg_record_new(VG_RECORD_ARRAY, device, context);
  if (!record) return false;
  record->size = bytes;
  bool done = true;
  if (unbacked) {
    record->count = descriptor->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? VG_ARRAY_DEFERRED : 0;
  } else if (bytes >= vg_granule_bytes(device)) {
    record->bytes = vg_round_up(bytes, vg_granule_bytes(device));
    done = vg_memory_reserve(device, record->bytes) == 0;
  } else {
    making->ordered = enter_order();
    done = add_small(record);
  }
  if (done) {
    making->record = record;
  } else {
    leave_order(making->ordered);
    vg_record_free(record);
  }
  return done;
}

static CUresult end(struct making *making, CUresult result, uint64_t handle) {
  if (making->record && result == CUDA_SUCCESS) vg_table_put(making->record, handle);
  if (making->record && result != CUDA_SUCCESS) vg_array_return(making->record);
  leave_order(making->ordered);
  return result;
}

#define CREATE(descriptor, levels, call)                                                                               \
  struct making making;                                                                                                \
  const CUDA_ARRAY3D_DESCRIPTOR *described = pHandle ? (descriptor) : NULL;                                            \
  if (!begin(described, levels, &making)) return vg_array_refusal(described, levels);                                  \
  CUresult result = call;                                                                                              \
  return end(&making, result, result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*pHandle : 0)

/* A program's descriptor of either version as ret_whole. NULL: it cannot be read, or nothing is accounted. */
static const CUDA_ARRAY3D_DESCRIPTOR *whole_2d(const CUDA_ARRAY_DESCRIPTOR *given, CUDA_ARRAY3D_DESCRIPTOR *ret_whole) {
  CUDA_ARRAY_DESCRIPTOR d;
  if (!VG_LOAD(&vg_session.ledger) || !vg_prim_peek(&d, given, sizeof d)) return NULL;
  *ret_whole = (CUDA_ARRAY3D_DESCRIPTOR){d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
  return ret_whole;
}

static const CUDA_ARRAY3D_DESCRIPTOR *whole_2d_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *given,
                                                  CUDA_ARRAY3D_DESCRIPTOR *ret_whole) {
  CUDA_ARRAY_DESCRIPTOR_v1 d;
  if (!VG_LOAD(&vg_session.ledger) || !vg_prim_peek(&d, given, sizeof d)) return NULL;
  *ret_whole = (CUDA_ARRAY3D_DESCRIPTOR){d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
  return ret_whole;
}

static const CUDA_ARRAY3D_DESCRIPTOR *whole_3d(const CUDA_ARRAY3D_DESCRIPTOR *given,
                                               CUDA_ARRAY3D_DESCRIPTOR *ret_whole) {
  return VG_LOAD(&vg_session.ledger) && vg_prim_peek(ret_whole, given, sizeof *ret_whole) ? ret_whole : NULL;
}

static const CUDA_ARRAY3D_DESCRIPTOR *whole_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *given,
                                                  CUDA_ARRAY3D_DESCRIPTOR *ret_whole) {
  CUDA_ARRAY3D_DESCRIPTOR_v1 d;
  if (!VG_LOAD(&vg_session.ledger) || !vg_prim_peek(&d, given, sizeof d)) return NULL;
  *ret_whole = (CUDA_ARRAY3D_DESCRIPTOR){d.Width, d.Height, d.Depth, d.Format, d.NumChannels, d.Flags};
  return ret_whole;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
  CUDA_ARRAY3D_DESCRIPTOR whole;
  CREATE(whole_2d(pAllocateArray, &whole), 0, REAL(cuArrayCreate_v2)(pHandle, pAllocateArray));
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray) {
  CUDA_ARRAY3D_DESCRIPTOR whole;
  CREATE(whole_2d_v1(pAllocateArray, &whole), 0, REAL(cuArrayCreate)(pHandle, pAllocateArray));
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
  CUDA_ARRAY3D_DESCRIPTOR whole;
  CREATE(whole_3d(pAllocateArray, &whole), 0, REAL(cuArray3DCreate_v2)(pHandle, pAllocateArray));
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray) {
  CUDA_ARRAY3D_DESCRIPTOR whole;
  CREATE(whole_3d_v1(pAllocateArray, &whole), 0, REAL(cuArray3DCreate)(pHandle, pAllocateArray));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  CUDA_ARRAY3D_DESCRIPTOR whole;
  CREATE(whole_3d(pMipmappedArrayDesc, &whole), numMipmapLevels ? numMipmapLevels : 1,
         REAL(cuMipmappedArrayCreate)(pHandle, pMipmappedArrayDesc, numMipmapLevels));
}

/* The record is taken before the call: once the driver has freed the handle another thread may be given it. */
#define DESTROY(handle, call)                                                                                          \
  struct vg_record *record = vg_table_take(VG_RECORD_ARRAY, (uint64_t)(uintptr_t)(handle));                            \
  bool ordered = record && record->other && enter_order();                                                             \
  bool unbacked = record && !record->other && !record->bytes;                                                          \
  unsigned entered = unbacked ? vg_handles_begin_end() : 0;                                                            \
  CUresult result = call;                                                                                              \
  if (record && result == CUDA_SUCCESS) vg_array_return(record);                                                       \
  if (record && result != CUDA_SUCCESS) vg_table_put(record, record->key);                                             \
  vg_handles_done(entered);                                                                                            \
  leave_order(ordered);                                                                                                \
  return result

CUresult cuArrayDestroy(CUarray hArray) {
  DESTROY(hArray, REAL(cuArrayDestroy)(hArray));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  DESTROY(hMipmappedArray, REAL(cuMipmappedArrayDestroy)(hMipmappedArray));
}

/* The child has none of the parent's arrays; the old list is never read again. */
void vg_array_forked_child(void) {
  vg_sparse_forked_child();
  pthread_mutex_init(&order, NULL);
  pthread_mutex_init(&lock, NULL);
  granules = NULL;
}
