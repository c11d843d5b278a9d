/*
 * limits: no way to take device memory goes beyond what there is, what is refused takes nothing, and host memory is not
 * the device's.
 */
#include "row.h"

static CUdeviceptr block;
static size_t before;

static size_t begin_over(void) {
  begin();
  block = UNTOUCHED;
  before = free_bytes();
  return total_bytes() / GRANULE * GRANULE + GRANULE;
}

static void still_works(void) {
  taken("after", before);
  CODE("still_works", cuMemAlloc_v2(&block, GRANULE));
}

static void over_pitch(void) {
  size_t pitch = 0, over = begin_over();
  CODE("alloc", cuMemAllocPitch_v2(&block, &pitch, 1 << 20, over >> 20, 4));
  fact("untouched", block == UNTOUCHED);
  still_works();
}

static void over_mipmap(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {16384, 16384, 0, CU_AD_FORMAT_FLOAT, 4, 0};
  CUmipmappedArray mipmap = NULL;
  wanted.Depth = begin_over() / (4ull << 30) + 1;
  CODE("create", cuMipmappedArrayCreate(&mipmap, &wanted, 2));
  fact("untouched", mipmap == NULL);
  still_works();
}

static void over_layered_array(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {16384, 16384, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED};
  CUarray array = NULL;
  wanted.Depth = begin_over() / (4ull << 30) + 1;
  CODE("create", cuArray3DCreate_v2(&array, &wanted));
  fact("untouched", array == NULL);
  still_works();
}

static void over_own_pool(void) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemoryPool pool;
  CUstream stream;
  size_t over = begin_over();
  NEED(cuMemPoolCreate(&pool, &props));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CODE("alloc", cuMemAllocFromPoolAsync(&block, over, pool, stream));
  CODE("wait", cuStreamSynchronize(stream));
  fact("untouched", block == UNTOUCHED);
  still_works();
}

/* The node is made while its stream captures; where it is refused is the driver's choice. */
static void over_captured(void) {
  CUgraph graph = NULL;
  CUgraphExec exec;
  CUstream stream;
  size_t over = begin_over();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUresult code = cuMemAllocAsync(&block, over, stream);
  CUresult end = cuStreamEndCapture(stream, &graph);
  if (code == CUDA_SUCCESS) code = end;
  if (code == CUDA_SUCCESS) code = cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (code == CUDA_SUCCESS) code = cuGraphLaunch(exec, stream);
  fact("refused_with", code);
  still_works();
}

/* Piece by piece: the last piece that fits is the last that is given, and all of it comes back. */
static void filled_up(void) {
  static CUdeviceptr pieces[4096];
  size_t count = 0, piece = begin_over() / 64 / GRANULE * GRANULE;
  CUresult code = CUDA_SUCCESS;
  while (count < 4096 && (code = cuMemAlloc_v2(&pieces[count], piece)) == CUDA_SUCCESS) count++;
  fact("refused_with", code);
  fact("less_left_than_a_piece", free_bytes() < piece + 64 * MIB);
  for (size_t i = 0; i < count; i++) NEED(cuMemFree_v2(pieces[i]));
  still_works();
}

static void host_memory_is_not_the_devices(void) {
  void *host;
  static char ours[4 * MIB];
  begin_over();
  CODE("alloc", cuMemHostAlloc(&host, 64 * MIB, CU_MEMHOSTALLOC_PORTABLE));
  taken("allocated", before);
  CODE("register", cuMemHostRegister_v2(ours, sizeof ours, 0));
  taken("registered", before);
  CODE("unregister", cuMemHostUnregister(ours));
  CODE("free", cuMemFreeHost(host));
  taken("after", before);
}

static void host_located(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
  CUmemGenericAllocationHandle handle;
  need_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "no mapped memory of the host");
  begin_over();
  CODE("create", cuMemCreate(&handle, 64 * MIB, &prop, 0));
  taken("created", before);
  CODE("release", cuMemRelease(handle));
  taken("after", before);
}

static void managed_within(void) {
  begin_over();
  CODE("alloc", cuMemAllocManaged(&block, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
  *(volatile int *)block = 7;
  CODE("set", cuMemsetD8_v2(block + 64, 1, 64));
  CODE("wait", cuCtxSynchronize());
  fact("value", *(volatile int *)block);
  CODE("free", cuMemFree_v2(block));
  fact("freed", free_bytes() + GRANULE >= before);
}

ROWS(ROW(over_pitch), ROW(over_mipmap), ROW(over_layered_array), ROW(over_own_pool), ROW(over_captured), ROW(filled_up),
     ROW(host_memory_is_not_the_devices), ROW(host_located), ROW(managed_within))
