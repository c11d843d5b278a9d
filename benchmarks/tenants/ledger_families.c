/* ledger_families.c - see ledger.h. A new family of memory is two functions and a row of the table at the end. */
#include "ledger.h"
#include <stdlib.h>

/* ---- by address ---- */

static bool make_plain(struct worker *worker, struct object *object) {
  return MAY(cuMemAlloc_v2(&object->parts[0], object->bytes));
}

static bool make_pitched(struct worker *worker, struct object *object) {
  size_t pitch;
  size_t width = 1 + object->bytes % 5000;
  return MAY(cuMemAllocPitch_v2(&object->parts[0], &pitch, width, 1 + object->bytes / width, 4));
}

static bool make_managed(struct worker *worker, struct object *object) {
  return MAY(cuMemAllocManaged(&object->parts[0], object->bytes, CU_MEM_ATTACH_GLOBAL));
}

static void drop_by_address(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuMemFree_v2(object->parts[0]));
}

/* Memory of cuMemAlloc freed in stream order, and the other way round: both are legal. */
static void drop_either_way(struct worker *worker, struct object *object) {
  CUstream stream = stream_of(worker);
  if (draw(worker, 3))
    MUST(cuMemFree_v2(object->parts[0]));
  else
    MUST(cuMemFreeAsync(object->parts[0], stream));
}

/* ---- in stream order ---- */

static bool make_async(struct worker *worker, struct object *object) {
  return MAY(cuMemAllocAsync(&object->parts[0], object->bytes, stream_of(worker)));
}

static bool make_from_pool(struct worker *worker, struct object *object) {
  return worker->pool &&
         MAY(cuMemAllocFromPoolAsync_ptsz(&object->parts[0], object->bytes, worker->pool, stream_of(worker)));
}

/* A pool that lives as long as the object, with its own threshold; freed memory may stay in it. */
static bool make_pool(struct worker *worker, struct object *object) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  cuuint64_t threshold = draw(worker, 4) * GRANULE;
  CUmemoryPool pool;
  if (!MAY(cuMemPoolCreate(&pool, &props))) return false;
  object->parts[0] = (uintptr_t)pool;
  object->parts[2] = (uintptr_t)stream_of(worker);
  (void)MAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  if (MAY(cuMemAllocFromPoolAsync(&object->parts[1], object->bytes, pool, (CUstream)object->parts[2]))) return true;
  MUST(cuMemPoolDestroy(pool));
  return false;
}

static void drop_pool(struct worker *worker, struct object *object) {
  CUmemoryPool pool = (CUmemoryPool)object->parts[0];
  MUST(cuMemFreeAsync(object->parts[1], (CUstream)object->parts[2]));
  if (draw(worker, 2)) (void)MAY(cuStreamSynchronize((CUstream)object->parts[2]));
  if (draw(worker, 2)) (void)MAY(cuMemPoolTrimTo(pool, draw(worker, 2) * GRANULE));
  MUST(cuMemPoolDestroy(pool));
}

/* ---- arrays ---- */

static CUDA_ARRAY3D_DESCRIPTOR array_of(struct worker *worker, uint64_t bytes) {
  if (bytes >= LARGE_BYTES)
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = 8192,
                                     .Height = 8192,
                                     .Depth = 1 + bytes / (8192ull * 8192 * 16),
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 4};
  size_t width = 16 + draw(worker, 1000);
  size_t height = 1 + bytes / (width * 4);
  if (height > 30000) height = 30000;
  return (CUDA_ARRAY3D_DESCRIPTOR){
      .Width = width, .Height = height, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1 + (unsigned)draw(worker, 2)};
}

static bool make_array(struct worker *worker, struct object *object) {
  CUDA_ARRAY3D_DESCRIPTOR shape = array_of(worker, object->bytes);
  return MAY(cuArray3DCreate_v2((CUarray *)&object->parts[0], &shape));
}

static void drop_array(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuArrayDestroy((CUarray)object->parts[0]));
}

static bool make_mipmapped(struct worker *worker, struct object *object) {
  CUDA_ARRAY3D_DESCRIPTOR shape = array_of(worker, object->bytes);
  return MAY(cuMipmappedArrayCreate((CUmipmappedArray *)&object->parts[0], &shape, 1 + (unsigned)draw(worker, 4)));
}

static void drop_mipmapped(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuMipmappedArrayDestroy((CUmipmappedArray)object->parts[0]));
}

/* ---- what takes no device memory ---- */

static bool make_host(struct worker *worker, struct object *object) {
  return MAY(cuMemHostAlloc((void **)&object->parts[0], object->bytes % GRANULE + 1, 0));
}

static void drop_host(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuMemFreeHost((void *)object->parts[0]));
}

static void drop_nothing(struct worker *worker, struct object *object) {
  (void)worker, (void)object;
}

const struct family families[] = {
    {"plain", 10, true, false, make_plain, drop_either_way},
    {"pitched", 3, true, false, make_pitched, drop_either_way},
    {"managed", 3, true, false, make_managed, drop_by_address},
    {"async", 8, false, false, make_async, drop_either_way},
    {"from_pool", 6, false, false, make_from_pool, drop_either_way},
    {"pool", 2, false, false, make_pool, drop_pool},
    {"mapped", 4, false, false, make_mapped, drop_mapped},
    {"unmapped", 2, false, false, make_unmapped, drop_unmapped},
    {"bound", 1, false, false, make_bound, drop_bound},
    {"array", 3, true, false, make_array, drop_array},
    {"mipmapped", 2, true, false, make_mipmapped, drop_mipmapped},
    {"sparse", 1, true, false, make_sparse, drop_sparse},
    {"graph", 2, false, false, make_graph, drop_graph},
    {"captured", 1, false, false, make_captured, drop_captured},
    {"context", 1, false, true, make_context, drop_context},
    {"green", 1, false, false, make_green, drop_green},
    {"shared_memory", 2, false, false, make_shared_memory, drop_shared_memory},
    {"shared_physical", 2, false, false, make_shared_physical, drop_shared_physical},
    {"shared_pool", 1, false, false, make_shared_pool, drop_shared_pool},
    {"shared_event", 1, false, true, make_shared_event, drop_shared_event},
    {"opened", 4, false, true, make_opened, drop_nothing},
    {"host", 1, true, true, make_host, drop_host},
};
const unsigned family_count = sizeof families / sizeof families[0];
