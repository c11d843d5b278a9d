/*
 * pool.c - stream-ordered allocations: charged by what their pool holds of the device
 * (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), not by allocation, since a pool keeps memory after the last free and gives it
 * back without a call. Called by programs, any thread, and by the ledger when credit is short (vg_pool_refresh).
 *
 * An allocation reserves its own size first and adds it to the pool's pending reservations; when the driver has
 * answered, the growth of the pool is paid from these. On a capturing stream nothing grows: the node is charged with
 * its graph (graph_memory.c).
 *
 * Over the limit the pool gives back what it keeps, as it does on a full device. An allocation that still has no credit
 * then is made without it where the pool must have free memory for it (free_room.c), since memory freed in stream order
 * may serve it. No other thread allocates from the pool meanwhile, or it could take that memory; and the allocation is
 * undone if the pool grew all the same.
 *
 * A pool of managed memory is charged in full, wherever its memory prefers to be: to the device of its location, else
 * to that of the context in which it was first asked for.
 */
#include "hooks/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/prim.h"
#include "context/context.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/capture_mode.h"
#include "hooks/free_room.h"
#include "ledger/credit.h"
#include "ledger/granule.h"
#include "ledger/records.h"

#define POOLS_FIRST 16
#define SHED_TRIES 8 /* what other threads free meanwhile is kept by the pool again */

struct pool {
  CUmemoryPool handle; /* NULL: free row */
  struct vg_device *device;
  uint64_t charged_bytes;
  uint64_t pending_bytes; /* reserved by allocations under way */
  int under_way;
  bool ended;    /* destroyed by the program while some of its memory was still in use */
  bool standard; /* the default one of its location */
  bool managed;
  CUmemLocation location; /* of a managed pool */
};

uint32_t vg_pool_frees_begun, vg_pool_frees_done;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t without_credit_lock = PTHREAD_MUTEX_INITIALIZER; /* before `lock` */
static CUmemoryPool without_credit_pool; /* from which one thread allocates without credit, and therefore no other */
static struct pool *pools;               /* grows: a pointer into it is good under the lock only */
static int pool_rows;                    /* with the free ones */

/* ---- under the lock; the driver calls here do not wait ---- */

static struct pool *find(CUmemoryPool handle) {
  for (int i = 0; handle && i < pool_rows; i++)
    if (pools[i].handle == handle) return &pools[i];
  return NULL;
}

static bool grow(void) {
  int rows = pool_rows ? pool_rows * 2 : POOLS_FIRST;
  struct pool *more = realloc(pools, (size_t)rows * sizeof *more);
  if (!more) return false;
  pools = more;
  for (int i = pool_rows; i < rows; i++) pools[i] = (struct pool){0};
  VG_STORE(&pool_rows, rows);
  return true;
}

/* NULL: no memory for a row. */
static struct pool *add(CUmemoryPool handle, struct vg_device *device) {
  struct pool *pool = find(handle);
  if (pool) return pool;
  int row = 0;
  while (row < pool_rows && pools[row].handle) row++;
  if (row == pool_rows && !grow()) return NULL;
  pools[row] = (struct pool){.handle = handle, .device = device};
  return &pools[row];
}

static uint64_t attribute(const struct pool *pool, CUmemPool_attribute name, uint64_t otherwise) {
  uint64_t value = 0;
  return REAL(cuMemPoolGetAttribute)(pool->handle, name, &value) == CUDA_SUCCESS ? value : otherwise;
}

/* Brings the charge to what the pool holds. False: it grew by more than was pending. */
static bool follow(struct pool *pool) {
  uint64_t held = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, pool->charged_bytes);
  uint64_t grown = held > pool->charged_bytes ? held - pool->charged_bytes : 0;
  uint64_t shrunk = pool->charged_bytes > held ? pool->charged_bytes - held : 0;
  pool->charged_bytes = held;
  if (shrunk) vg_memory_release(pool->device, shrunk);
  uint64_t paid = grown < pool->pending_bytes ? grown : pool->pending_bytes;
  pool->pending_bytes -= paid;
  if (grown > paid) vg_memory_force(pool->device, grown - paid);
  return grown == paid;
}

static void forget(struct pool *pool) {
  vg_memory_release(pool->device, pool->charged_bytes + pool->pending_bytes);
  *pool = (struct pool){0};
}

/* Trims and destroys pools for the shim itself: that may not invalidate what other threads capture. */
static CUresult relaxed(CUresult (*call)(CUmemoryPool), CUmemoryPool handle) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged = vg_capture_mode_exchange(&mode);
  CUresult result = call(handle);
  if (exchanged) vg_capture_mode_exchange(&mode);
  return result;
}

static CUresult trim(CUmemoryPool handle) {
  return REAL(cuMemPoolTrimTo)(handle, 0);
}

/* Unknown counts as used: a destroyed pool cannot be queried any more. */
static bool in_use(const struct pool *pool) {
  return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 1) != 0;
}

/* A pool lives until its last allocation is freed, but cannot be queried any more once the driver was asked to destroy
 * it: so that call is made when nothing of it is in use. */
static void destroy_unused(struct pool *pool) {
  if (pool->under_way || in_use(pool)) return;
  relaxed(REAL(cuMemPoolDestroy), pool->handle);
  forget(pool);
}

/* ---- which pool ---- */

static struct vg_device *stream_device(CUstream stream) {
  CUcontext context;
  struct vg_device *device = vg_context_current(&context);
  bool own_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (!device || own_default || vg_session.device_count == 1) return device;
  if (REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS) return device;
  struct vg_device *other = vg_context_device_of(context);
  return other ? other : device;
}

/* For a pool that the program did not create here and that is not managed: the device whose default pool it is; NULL
 * for an imported pool, which is not charged. */
static struct vg_device *default_pool_device(CUmemoryPool handle) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    CUmemoryPool candidate;
    CUdevice ordinal = vg_context_handle(&vg_session.devices[i]);
    if (ordinal < 0) continue;
    if (REAL(cuDeviceGetDefaultMemPool)(&candidate, ordinal) == CUDA_SUCCESS && candidate == handle)
      return &vg_session.devices[i];
  }
  return NULL;
}

/* Whether the program has destroyed the pool, which the driver still has. */
static bool ended(CUmemoryPool handle) {
  if (!VG_LOAD(&pool_rows)) return false;
  pthread_mutex_lock(&lock);
  const struct pool *pool = find(handle);
  bool known_ended = pool && pool->ended;
  pthread_mutex_unlock(&lock);
  return known_ended;
}

static struct vg_device *pool_device(CUmemoryPool handle) {
  pthread_mutex_lock(&lock);
  struct pool *pool = find(handle);
  struct vg_device *device = pool ? pool->device : NULL;
  pthread_mutex_unlock(&lock);
  return device || !VG_LOAD(&vg_session.ledger) ? device : default_pool_device(handle);
}

/* ---- allocation ---- */

typedef CUresult alloc_call(CUdeviceptr *address, size_t bytes, CUstream stream);
typedef CUresult pool_call(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
typedef CUresult free_call(CUdeviceptr address, CUstream stream);
typedef CUresult status_call(CUstream stream, CUstreamCaptureStatus *status);

struct order {              /* one allocation from a pool */
  struct vg_device *device; /* NULL: pass on */
  CUmemoryPool handle;
  CUstream stream;
  free_call *undo;     /* of the caller's kind of default stream */
  status_call *status; /* of the caller's kind of default stream */
  bool without_credit; /* under without_credit_lock */
  uint32_t frees;      /* begun, and all done, when the pool last gave back what it keeps: the rest it cannot give */
  struct vg_record *record;
};

/* The allocation becomes a node of a graph and takes nothing now. */
static bool captures(const struct order *order) {
  CUstreamCaptureStatus status;
  return order->status(order->stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool frees_since(uint32_t frees) {
  return VG_LOAD(&vg_pool_frees_done) != frees || VG_LOAD(&vg_pool_frees_begun) != frees;
}

/* Whether the pool must be able to serve bytes without growing. */
static bool has_free_memory(const struct pool *pool, uint64_t bytes) {
  uint64_t held = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0);
  uint64_t used = attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, held);
  return used <= held && bytes <= held - used && vg_room_in_pool(pool->device, pool->handle, held, bytes);
}

/* Under the lock, which is released while waiting: a thread that allocates without credit has the pool to itself.
 * False: other threads did not return from the driver in time. */
static bool has_turn(const struct order *order) {
  enum { PATIENCE_NS = 100000000, STEP_NS = 20000 };
  while (!order->without_credit && without_credit_pool == order->handle) {
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&without_credit_lock);
    pthread_mutex_unlock(&without_credit_lock);
    pthread_mutex_lock(&lock);
  }
  if (!order->without_credit) return true;
  without_credit_pool = order->handle;
  uint64_t now_ns = vg_prim_now_ns(), end_ns = now_ns + PATIENCE_NS;
  const struct pool *pool;
  while ((pool = find(order->handle)) && pool->under_way && now_ns < end_ns) {
    pthread_mutex_unlock(&lock);
    vg_prim_sleep_until_ns(now_ns + STEP_NS);
    now_ns = vg_prim_now_ns();
    pthread_mutex_lock(&lock);
  }
  return !pool || !pool->under_way;
}

/* Other threads may allocate from the pool again. */
static void end_without_credit(void) {
  pthread_mutex_lock(&lock);
  without_credit_pool = NULL;
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&without_credit_lock);
}

/* The pool gives back what it keeps. True: it had something to give. */
static bool shed(CUmemoryPool handle) {
  if (relaxed(trim, handle) != CUDA_SUCCESS) return false;
  pthread_mutex_lock(&lock);
  struct pool *pool = find(handle);
  uint64_t before = pool ? pool->charged_bytes : 0;
  if (pool) follow(pool);
  bool less = pool && pool->charged_bytes < before;
  pthread_mutex_unlock(&lock);
  return less;
}

/* False: over the limit. Without credit the driver is asked only if the pool has free memory; settle() checks. */
static bool begin(struct order *order, struct vg_device *device, uint64_t bytes) {
  CUmemoryPool handle = order->handle;
  CUcontext context;
  if (!device || !bytes) return true;
  vg_context_current(&context);
  order->record = vg_record_new(VG_RECORD_POOLED, device, context);
  if (!order->record) return false;
  order->record->size = bytes;
  order->record->other = (uintptr_t)handle;
  uint64_t reserved = vg_round_up(bytes, vg_granule_bytes(device));
  bool refused = vg_memory_reserve(device, reserved) != 0;
  order->without_credit = refused && !captures(order);
  if (order->without_credit) pthread_mutex_lock(&without_credit_lock);
  for (int tries = 0; order->without_credit && tries < SHED_TRIES; tries++) {
    order->frees = VG_LOAD(&vg_pool_frees_begun);
    if (!shed(handle) && !frees_since(order->frees)) break;
    refused = vg_memory_reserve(device, reserved) != 0;
    if (refused) continue;
    order->without_credit = false;
    pthread_mutex_unlock(&without_credit_lock);
  }
  if (refused) reserved = 0;
  pthread_mutex_lock(&lock);
  bool turn = has_turn(order);
  struct pool *pool = add(handle, device);
  bool proceeds =
      pool && turn && (!order->without_credit || (!frees_since(order->frees) && has_free_memory(pool, bytes)));
  if (proceeds) {
    pool->pending_bytes += reserved;
    pool->under_way++;
    order->device = device;
  }
  pthread_mutex_unlock(&lock);
  if (!proceeds && order->without_credit) end_without_credit();
  if (!pool && reserved) vg_memory_release(device, reserved);
  if (!proceeds) vg_record_free(order->record);
  return proceeds;
}

static bool end(struct order *order) {
  pthread_mutex_lock(&lock);
  struct pool *pool = find(order->handle);
  bool paid = !pool || follow(pool);
  uint64_t left = 0;
  if (pool && --pool->under_way == 0) {
    left = pool->pending_bytes;
    pool->pending_bytes = 0;
  }
  pthread_mutex_unlock(&lock);
  if (left) vg_memory_release(order->device, left);
  return paid || vg_memory_reserve(order->device, 0) == 0;
}

static CUmemoryPool current_pool(struct vg_device *device) {
  CUmemoryPool handle = NULL;
  if (REAL(cuDeviceGetMemPool)(&handle, vg_context_handle(device)) != CUDA_SUCCESS) return NULL;
  return handle;
}

static CUresult settle(struct order *order, CUresult result, CUdeviceptr address, CUdeviceptr *out) {
  bool known = result == CUDA_SUCCESS && !captures(order);
  if (known)
    vg_table_put(order->record, address);
  else
    vg_record_free(order->record);
  bool paid = end(order);
  if (known && !paid) vg_record_free(vg_table_take(VG_RECORD_POOLED, address));
  if (result == CUDA_SUCCESS && paid) *out = address;
  if (result == CUDA_SUCCESS && !paid) {
    order->undo(address, order->stream);
    shed(order->handle); /* what is not back yet comes back at a synchronisation, and is charged until then */
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (order->without_credit) end_without_credit();
  return result;
}

/* The error where a reservation fails: OUT_OF_MEMORY, unless the stream is invalid. */
static CUresult refused(const struct order *order) {
  CUstreamCaptureStatus status;
  CUresult result = order->status(order->stream, &status);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult allocate(struct order order, CUdeviceptr *dptr, size_t bytes, alloc_call *call) {
  struct vg_device *device = dptr ? stream_device(order.stream) : NULL;
  order.handle = device ? current_pool(device) : NULL;
  if (!order.handle) return call(dptr, bytes, order.stream);
  if (!begin(&order, device, bytes)) return refused(&order);
  if (!order.device) return call(dptr, bytes, order.stream);
  CUdeviceptr address = 0;
  CUresult result = call(&address, bytes, order.stream);
  return settle(&order, result, address, dptr);
}

static CUresult allocate_from(struct order order, CUdeviceptr *dptr, size_t bytes, pool_call *call) {
  if (ended(order.handle)) return CUDA_ERROR_INVALID_VALUE;
  struct vg_device *device = dptr && order.handle ? pool_device(order.handle) : NULL;
  if (!begin(&order, device, bytes)) return refused(&order);
  if (!order.device) return call(dptr, bytes, order.handle, order.stream);
  CUdeviceptr address = 0;
  CUresult result = call(&address, bytes, order.handle, order.stream);
  return settle(&order, result, address, dptr);
}

#define LEGACY(stream_, pool_)                                                                                         \
  ((struct order){NULL, pool_, stream_, REAL(cuMemFreeAsync), REAL(cuStreamIsCapturing), false, 0, NULL})
#define PER_THREAD(stream_, pool_)                                                                                     \
  ((struct order){NULL, pool_, stream_, REAL(cuMemFreeAsync_ptsz), REAL(cuStreamIsCapturing_ptsz), false, 0, NULL})

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return allocate(LEGACY(hStream, NULL), dptr, bytesize, REAL(cuMemAllocAsync));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return allocate(PER_THREAD(hStream, NULL), dptr, bytesize, REAL(cuMemAllocAsync_ptsz));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  return allocate_from(LEGACY(hStream, pool), dptr, bytesize, REAL(cuMemAllocFromPoolAsync));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  return allocate_from(PER_THREAD(hStream, pool), dptr, bytesize, REAL(cuMemAllocFromPoolAsync_ptsz));
}

/* ---- pools ---- */

static bool is_managed(CUmemAllocationType type) {
  return type == CU_MEM_ALLOCATION_TYPE_MANAGED;
}

/* The device that a pool is charged to; NULL: none. */
static struct vg_device *device_at(const CUmemLocation *location, CUmemAllocationType type) {
  CUcontext context;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) return vg_context_ordinal(location->id);
  if (!is_managed(type)) return NULL; /* memory of the host */
  struct vg_device *device = vg_context_current(&context);
  return device ? device : vg_context_ordinal(0);
}

/* False: no memory for a row. */
static bool note(CUmemoryPool handle, const CUmemLocation *location, CUmemAllocationType type, bool standard) {
  struct vg_device *device = device_at(location, type);
  if (!device) return true;
  pthread_mutex_lock(&lock);
  bool fresh = !find(handle);
  struct pool *pool = add(handle, device);
  if (pool && fresh) {
    pool->standard = standard;
    pool->managed = is_managed(type);
    pool->location = *location;
  }
  pthread_mutex_unlock(&lock);
  return pool != NULL;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
  CUresult result = REAL(cuMemPoolCreate)(pool, poolProps);
  if (result != CUDA_SUCCESS || note(*pool, &poolProps->location, poolProps->allocType, false)) return result;
  REAL(cuMemPoolDestroy)(*pool);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Pools of pinned memory are found when they are used. Any pool but the default one is known since its creation. */
static CUresult found(const CUmemoryPool *pool, const CUmemLocation *location, CUmemAllocationType type,
                      CUresult result) {
  if (result != CUDA_SUCCESS || !is_managed(type)) return result;
  return note(*pool, location, type, true) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
  return found(pool_out, location, type, REAL(cuMemGetDefaultMemPool)(pool_out, location, type));
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  return found(pool, location, type, REAL(cuMemGetMemPool)(pool, location, type));
}

/* Where the pool is the current one of its location, the default pool becomes it. */
static void leave_current(struct pool *pool) {
  CUdevice ordinal = vg_context_handle(pool->device);
  CUmemLocation *location = &pool->location;
  CUmemAllocationType managed = CU_MEM_ALLOCATION_TYPE_MANAGED;
  CUmemoryPool current = NULL, standard = NULL;
  if (pool->managed) {
    REAL(cuMemGetMemPool)(&current, location, managed);
    if (current == pool->handle && REAL(cuMemGetDefaultMemPool)(&standard, location, managed) == CUDA_SUCCESS)
      REAL(cuMemSetMemPool)(location, managed, standard);
  } else {
    REAL(cuDeviceGetMemPool)(&current, ordinal);
    if (current == pool->handle && REAL(cuDeviceGetDefaultMemPool)(&standard, ordinal) == CUDA_SUCCESS)
      REAL(cuDeviceSetMemPool)(ordinal, standard);
  }
}

/* The program ends a pool that is in use: from now on freed memory goes back to the device at once, and new allocations
 * come from another pool. Under the lock. */
static void end_in_use(struct pool *pool) {
  cuuint64_t nothing = 0;
  pool->ended = true;
  REAL(cuMemPoolSetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing);
  relaxed(trim, pool->handle);
  leave_current(pool);
  follow(pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  bool standard = default_pool_device(pool) != NULL; /* which the driver refuses */
  pthread_mutex_lock(&lock);
  struct pool *known = find(pool);
  standard |= known && known->standard;
  bool again = known && known->ended;
  bool lives_on = known && !standard && in_use(known);
  if (lives_on && !again) end_in_use(known);
  CUresult result = again ? CUDA_ERROR_INVALID_VALUE : lives_on ? CUDA_SUCCESS : REAL(cuMemPoolDestroy)(pool);
  if (known && !again && !lives_on && result == CUDA_SUCCESS) forget(known);
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  if (ended(pool)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
  pthread_mutex_lock(&lock);
  struct pool *known = find(pool);
  if (known && known->device) follow(known);
  pthread_mutex_unlock(&lock);
  return result;
}

/* ---- calls that fail for a pool that the program has destroyed ---- */

#define UNLESS_ENDED(pool, call) return ended(pool) ? CUDA_ERROR_INVALID_VALUE : (call)

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
  UNLESS_ENDED(pool, REAL(cuMemPoolGetAttribute)(pool, attr, value));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
  UNLESS_ENDED(pool, REAL(cuMemPoolSetAttribute)(pool, attr, value));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
  UNLESS_ENDED(pool, REAL(cuMemPoolSetAccess)(pool, map, count));
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location) {
  UNLESS_ENDED(memPool, REAL(cuMemPoolGetAccess)(flags, memPool, location));
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  UNLESS_ENDED(pool, REAL(cuMemPoolExportToShareableHandle)(handle_out, pool, handleType, flags));
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  UNLESS_ENDED(pool, REAL(cuDeviceSetMemPool)(dev, pool));
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
  UNLESS_ENDED(pool, REAL(cuMemSetMemPool)(location, type, pool));
}

void vg_pool_refresh(struct vg_device *device) {
  if (!VG_LOAD(&pool_rows)) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < pool_rows; i++)
    if (pools[i].handle && pools[i].device == device) {
      follow(&pools[i]);
      if (pools[i].ended) destroy_unused(&pools[i]);
    }
  pthread_mutex_unlock(&lock);
}

void vg_pool_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  pthread_mutex_init(&without_credit_lock, NULL);
  without_credit_pool = NULL;
  pool_rows = 0;
  vg_pool_frees_begun = vg_pool_frees_done = 0;
  pools = NULL; /* the parent's, perhaps in the middle of a change */
}
