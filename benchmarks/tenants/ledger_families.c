/* ledger_families.c - see ledger.h. A new family of memory is two functions and a row of the table at the end. */
#include "ledger.h"
#include <stdlib.h>

#define GRANULE (2ull << 20)

static CUstream stream_of(struct worker *worker) {
  return worker->streams[draw(worker, STREAMS)];
}

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

/* ---- by handle ---- */

static const CUmemAllocationProp physical = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* parts: handle (0: released already), address, size, whether it is mapped twice */
static bool make_mapped(struct worker *worker, struct object *object) {
  size_t size = (object->bytes + GRANULE - 1) / GRANULE * GRANULE;
  CUmemGenericAllocationHandle handle, again;
  CUdeviceptr address;
  if (!MAY(cuMemCreate(&handle, size, &physical, 0))) return false;
  object->parts[3] = draw(worker, 2);
  if (!MAY(cuMemAddressReserve(&address, 2 * size, 0, 0, 0))) {
    MUST(cuMemRelease(handle));
    return false;
  }
  bool mapped = MAY(cuMemMap(address, size, 0, handle, 0));
  if (mapped && object->parts[3]) object->parts[3] = MAY(cuMemMap(address + size, size, 0, handle, 0));
  if (!mapped) {
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(address, 2 * size));
    return false;
  }
  if (draw(worker, 2) && MAY(cuMemRetainAllocationHandle(&again, (void *)address))) MUST(cuMemRelease(again));
  if (draw(worker, 2)) { /* the mapping alone keeps it */
    MUST(cuMemRelease(handle));
    handle = 0;
  }
  object->parts[0] = handle;
  object->parts[1] = address;
  object->parts[2] = size;
  return true;
}

static void drop_mapped(struct worker *worker, struct object *object) {
  uint64_t handle = object->parts[0], address = object->parts[1], size = object->parts[2];
  if (handle && draw(worker, 2)) {
    MUST(cuMemRelease(handle));
    handle = 0;
  }
  MUST(cuMemUnmap(address, object->parts[3] ? 2 * size : size));
  MUST(cuMemAddressFree(address, 2 * size));
  if (handle) MUST(cuMemRelease(handle));
}

static bool make_unmapped(struct worker *worker, struct object *object) {
  return MAY(cuMemCreate(&object->parts[0], (object->bytes + GRANULE - 1) / GRANULE * GRANULE, &physical, 0));
}

static void drop_unmapped(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuMemRelease(object->parts[0]));
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

/* ---- graphs ---- */

static bool add_nodes(struct worker *worker, CUgraph graph, uint64_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {
      .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
      .bytesize = bytes};
  CUgraphNode taken, freed;
  return MAY(cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &params)) &&
         MAY(cuGraphAddMemFreeNode(&freed, graph, &taken, 1, params.dptr));
}

static bool make_graph(struct worker *worker, struct object *object) {
  CUgraph graph;
  CUgraphExec exec;
  if (!MAY(cuGraphCreate(&graph, 0))) return false;
  bool made = add_nodes(worker, graph, object->bytes) && MAY(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  if (!made) return false;
  object->parts[0] = (uintptr_t)exec;
  uint64_t launches = object->bytes >= LARGE_BYTES ? 1 : draw(worker, 3);
  for (uint64_t left = launches; left; left--) (void)MAY(cuGraphLaunch(exec, stream_of(worker)));
  return true;
}

static void drop_graph(struct worker *worker, struct object *object) {
  MUST(cuGraphExecDestroy((CUgraphExec)object->parts[0]));
  if (!draw(worker, 4)) (void)MAY(cuDeviceGraphMemTrim(0));
}

/* ---- contexts ---- */

/* A context of its own with memory in it, which its end gives back. */
static bool make_context(struct worker *worker, struct object *object) {
  CUcontext popped;
  CUdeviceptr left_behind;
  if (!MAY(cuCtxCreate_v2((CUcontext *)&object->parts[0], 0, 0))) return false;
  for (uint64_t left = draw(worker, 4); left; left--) (void)MAY(cuMemAlloc_v2(&left_behind, draw_bytes(worker)));
  MUST(cuCtxPopCurrent_v2(&popped));
  return true;
}

static void drop_context(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuCtxDestroy_v2((CUcontext)object->parts[0]));
}

/* ---- what takes no device memory ---- */

static bool make_host(struct worker *worker, struct object *object) {
  return MAY(cuMemHostAlloc((void **)&object->parts[0], object->bytes % GRANULE + 1, 0));
}

static void drop_host(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuMemFreeHost((void *)object->parts[0]));
}

const struct family families[] = {
    {"plain", 10, false, make_plain, drop_either_way},
    {"pitched", 3, false, make_pitched, drop_either_way},
    {"managed", 3, false, make_managed, drop_by_address},
    {"async", 8, false, make_async, drop_either_way},
    {"from_pool", 6, false, make_from_pool, drop_either_way},
    {"pool", 2, false, make_pool, drop_pool},
    {"mapped", 4, false, make_mapped, drop_mapped},
    {"unmapped", 2, false, make_unmapped, drop_unmapped},
    {"array", 3, true, make_array, drop_array},
    {"mipmapped", 2, true, make_mipmapped, drop_mipmapped},
    {"graph", 2, true, make_graph, drop_graph},
    {"context", 1, false, make_context, drop_context},
    {"host", 1, false, make_host, drop_host},
};
const unsigned family_count = sizeof families / sizeof families[0];
