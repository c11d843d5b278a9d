/*
 * test_ledger_handles.c - handles of physical memory while other threads let go of them: what a call of the driver has
 * retained, mapped or bound stays charged. The driver is a fake that has one piece of memory and counts its holders;
 * in the middle of a call it lets another thread release what the call is about.
 */
#include <pthread.h>

#include "base/prim.h"
#include "check.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/charge.h"
#include "hooks/physical.h"
#include "hooks/sparse.h"
#include "ledger/credit.h"
#include "moves/movable.h"

#define BYTES (2ull << 20)
#define MEMORY 0x100ull
#define OBJECT 0x200ull
#define ADDRESS ((CUdeviceptr)BYTES)
#define HOST 0x400ull
#define MOMENT_NS (100 * VG_NS_PER_MS) /* a thread that is not kept away is done by then */
#define LONG_NS (10 * VG_NS_PER_S)     /* one that is kept away may continue by then */

struct vg_session vg_session;
void *vg_real_slots[VG_ENTRY_COUNT];
static uint64_t charged_bytes;
static int held;                /* references that the driver has to the memory */
static void (*meanwhile)(void); /* in another thread, in the middle of a call */
static pthread_t other;
static uint32_t other_done;
static uint64_t moment_ns = MOMENT_NS;

/* ---- what the rest of the hook answers ---- */

bool vg_resolve_has(enum vg_entry entry, void **slots) {
  (void)entry, (void)slots;
  return false;
}

int vg_memory_reserve(struct vg_device *device, uint64_t bytes) {
  CHECK(device == &vg_session.devices[0]);
  __atomic_add_fetch(&charged_bytes, bytes, __ATOMIC_RELAXED);
  return 0;
}

void vg_memory_release(struct vg_device *device, uint64_t bytes) {
  CHECK(device == &vg_session.devices[0] && VG_LOAD_RELAXED(&charged_bytes) >= bytes);
  __atomic_sub_fetch(&charged_bytes, bytes, __ATOMIC_RELAXED);
}

struct vg_device *vg_context_ordinal(CUdevice ordinal) {
  return ordinal == 0 ? &vg_session.devices[0] : NULL;
}

bool vg_movable_has(CUdeviceptr address) {
  (void)address;
  return false;
}

void vg_charge_return(struct vg_record *record) {
  if (record->bytes) vg_memory_release(record->device, record->bytes);
  vg_record_free(record);
}

/* ---- the driver ---- */

static void *run_other(void *unused) {
  (void)unused;
  meanwhile();
  VG_STORE(&other_done, 1);
  return NULL;
}

static void let_other_run(void) {
  if (!meanwhile) return;
  VG_STORE(&other_done, 0);
  CHECK(pthread_create(&other, NULL, run_other, NULL) == 0);
  uint64_t end_ns = vg_prim_now_ns() + moment_ns;
  while (!VG_LOAD(&other_done) && vg_prim_now_ns() < end_ns) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
}

static CUresult hold(void) {
  __atomic_add_fetch(&held, 1, __ATOMIC_RELAXED);
  let_other_run();
  return CUDA_SUCCESS;
}

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                            unsigned long long flags) {
  (void)bytes, (void)prop, (void)flags;
  *handle = MEMORY;
  held = 1;
  return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle) {
  if (handle == MEMORY) __atomic_sub_fetch(&held, 1, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
  (void)address, (void)bytes, (void)offset, (void)flags;
  return handle == MEMORY ? hold() : CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr address, size_t bytes) {
  (void)bytes;
  return address == ADDRESS ? fake_release(MEMORY) : CUDA_SUCCESS;
}

static CUresult fake_retain(CUmemGenericAllocationHandle *handle, void *address) {
  (void)address;
  *handle = MEMORY;
  return hold();
}

static CUresult fake_map_array(CUarrayMapInfo *list, unsigned int count, CUstream stream) {
  (void)list, (void)count, (void)stream;
  return hold();
}

static CUresult fake_bind(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr address, size_t bytes,
                          unsigned long long flags) {
  (void)object, (void)at, (void)address, (void)bytes, (void)flags;
  return hold();
}

static CUresult fake_import(CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType type) {
  (void)os_handle, (void)type;
  *handle = OBJECT;
  return CUDA_SUCCESS;
}

/* The others of these let go after a moment, and take only what is there. */
static CUresult fake_slow_release(CUmemGenericAllocationHandle handle) {
  let_other_run();
  return fake_release(handle);
}

static CUresult fake_slow_unmap(CUdeviceptr address, size_t bytes) {
  let_other_run();
  return fake_unmap(address, bytes);
}

static CUresult fake_quick_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                               unsigned long long flags) {
  (void)address, (void)bytes, (void)offset, (void)flags;
  if (handle != MEMORY || !VG_LOAD(&held)) return CUDA_ERROR_INVALID_VALUE;
  __atomic_add_fetch(&held, 1, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

static CUresult fake_quick_retain(CUmemGenericAllocationHandle *handle, void *address) {
  (void)handle, (void)address;
  return CUDA_ERROR_INVALID_VALUE;
}

/* ---- the tests ---- */

static void letting_go(void) {
  CHECK(cuMemUnmap(ADDRESS, BYTES) == CUDA_SUCCESS);
}

static void releasing(void) {
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
}

static void begin(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  meanwhile = NULL;
  CHECK(cuMemCreate(&handle, BYTES, &prop, 0) == CUDA_SUCCESS && handle == MEMORY);
  CHECK(charged_bytes == BYTES);
}

/* So many references of the driver to the memory are left; the ledger has it as long as there are any. */
static void expect_held(int count) {
  if (meanwhile) pthread_join(other, NULL);
  meanwhile = NULL;
  CHECK(held == count);
  CHECK(charged_bytes == (count ? BYTES : 0));
}

static void what_is_retained_stays_charged(void) {
  CUmemGenericAllocationHandle handle;
  begin();
  CHECK(cuMemMap(ADDRESS, BYTES, 0, MEMORY, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
  meanwhile = letting_go;
  CHECK(cuMemRetainAllocationHandle(&handle, (void *)ADDRESS) == CUDA_SUCCESS);
  expect_held(1);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  expect_held(0);
}

static void what_is_mapped_into_an_array_stays_charged(void) {
  CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                         .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                         .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
                         .memHandle = {MEMORY}};
  info.resource.array = (CUarray)0x300;
  info.subresource.sparseLevel.extentWidth = info.subresource.sparseLevel.extentHeight = 16;
  info.subresource.sparseLevel.extentDepth = 1;
  begin();
  meanwhile = releasing;
  CHECK(cuMemMapArrayAsync(&info, 1, NULL) == CUDA_SUCCESS);
  expect_held(1);
  fake_release(MEMORY); /* with the array */
  vg_sparse_gone(0x300);
  expect_held(0);
}

static void what_is_bound_stays_charged(void) {
  begin();
  CHECK(cuMemMap(ADDRESS, BYTES, 0, MEMORY, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
  CHECK(cuMulticastBindAddr(OBJECT, 0, ADDRESS, BYTES, 0) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(ADDRESS, BYTES) == CUDA_SUCCESS);
  expect_held(1);
  fake_release(MEMORY); /* with the object, which is not known here: it ends by itself */
  vg_physical_object_gone(OBJECT);
  expect_held(0);
}

/* An object of another process: its mapping keeps it, and what is bound to it, without the handle. */
static void what_is_bound_to_an_import_stays_charged(void) {
  CUmemGenericAllocationHandle object;
  begin();
  CHECK(cuMemMap(ADDRESS, BYTES, 0, MEMORY, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
  CHECK(cuMemImportFromShareableHandle(&object, NULL, CU_MEM_HANDLE_TYPE_FABRIC) == CUDA_SUCCESS);
  CHECK(cuMemMap(8 * BYTES, BYTES, 0, object, 0) == CUDA_SUCCESS);
  CHECK(cuMulticastBindAddr(object, 0, ADDRESS, BYTES, 0) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(ADDRESS, BYTES) == CUDA_SUCCESS);
  CHECK(cuMemRelease(object) == CUDA_SUCCESS);
  expect_held(1);
  fake_release(MEMORY); /* with the last of the object */
  CHECK(cuMemUnmap(8 * BYTES, BYTES) == CUDA_SUCCESS);
  expect_held(0);
}

/* In one range with memory of the host, which is not charged. */
static void what_is_unmapped_behind_memory_of_the_host_is_let_go(void) {
  begin();
  CHECK(cuMemMap(ADDRESS, BYTES, 0, HOST, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(ADDRESS + BYTES, BYTES, 0, MEMORY, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(ADDRESS, 2 * BYTES) == CUDA_SUCCESS);
  expect_held(0);
}

static void mapping(void) {
  cuMemMap(ADDRESS, BYTES, 0, MEMORY, 0);
}

/* The driver may take the map before the release, or after it and refuse it. */
static void what_is_mapped_while_it_is_released_stays_charged(void) {
  void *release = vg_real_slots[VG_ENTRY_cuMemRelease], *map = vg_real_slots[VG_ENTRY_cuMemMap];
  vg_real_slots[VG_ENTRY_cuMemRelease] = (void *)fake_slow_release;
  vg_real_slots[VG_ENTRY_cuMemMap] = (void *)fake_quick_map;
  begin();
  meanwhile = mapping;
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
  pthread_join(other, NULL);
  meanwhile = NULL;
  expect_held(held);
  if (held) CHECK(cuMemUnmap(ADDRESS, BYTES) == CUDA_SUCCESS);
  expect_held(0);
  vg_real_slots[VG_ENTRY_cuMemRelease] = release;
  vg_real_slots[VG_ENTRY_cuMemMap] = map;
}

static void retaining(void) {
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemRetainAllocationHandle(&handle, (void *)(16 * BYTES)) == CUDA_ERROR_INVALID_VALUE);
}

/* A driver's call that ends only when another thread has made one: programs that work without us do so with us. */
static void calls_that_wait_for_each_other_do_not_hang(void) {
  void *unmap = vg_real_slots[VG_ENTRY_cuMemUnmap], *retain = vg_real_slots[VG_ENTRY_cuMemRetainAllocationHandle];
  begin();
  CHECK(cuMemMap(ADDRESS, BYTES, 0, MEMORY, 0) == CUDA_SUCCESS);
  vg_real_slots[VG_ENTRY_cuMemUnmap] = (void *)fake_slow_unmap;
  vg_real_slots[VG_ENTRY_cuMemRetainAllocationHandle] = (void *)fake_quick_retain;
  meanwhile = retaining;
  moment_ns = LONG_NS;
  uint64_t end_ns = vg_prim_now_ns() + LONG_NS;
  CHECK(cuMemUnmap(ADDRESS, BYTES) == CUDA_SUCCESS);
  CHECK(vg_prim_now_ns() < end_ns);
  expect_held(1);
  moment_ns = MOMENT_NS;
  vg_real_slots[VG_ENTRY_cuMemUnmap] = unmap;
  vg_real_slots[VG_ENTRY_cuMemRetainAllocationHandle] = retain;
  CHECK(cuMemRelease(MEMORY) == CUDA_SUCCESS);
  expect_held(0);
}

int main(void) {
  vg_session.ledger = true;
  vg_real_slots[VG_ENTRY_cuMemCreate] = (void *)fake_create;
  vg_real_slots[VG_ENTRY_cuMemRelease] = (void *)fake_release;
  vg_real_slots[VG_ENTRY_cuMemMap] = (void *)fake_map;
  vg_real_slots[VG_ENTRY_cuMemUnmap] = (void *)fake_unmap;
  vg_real_slots[VG_ENTRY_cuMemRetainAllocationHandle] = (void *)fake_retain;
  vg_real_slots[VG_ENTRY_cuMemMapArrayAsync] = (void *)fake_map_array;
  vg_real_slots[VG_ENTRY_cuMulticastBindAddr] = (void *)fake_bind;
  vg_real_slots[VG_ENTRY_cuMemImportFromShareableHandle] = (void *)fake_import;
  RUN(what_is_retained_stays_charged);
  RUN(what_is_mapped_into_an_array_stays_charged);
  RUN(what_is_bound_stays_charged);
  RUN(what_is_bound_to_an_import_stays_charged);
  RUN(what_is_unmapped_behind_memory_of_the_host_is_let_go);
  RUN(what_is_mapped_while_it_is_released_stays_charged);
  RUN(calls_that_wait_for_each_other_do_not_hang);
  return 0;
}
