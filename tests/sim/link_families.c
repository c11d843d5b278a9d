/*
 * link_families: one copy of each family that crosses the link, and some that do not; then says how many bytes went
 * each way. Waits for a line before it ends.
 */
#include "program.h"

#define BYTES (1u << 20)
#define PAGE 4096u

static CUdeviceptr device, other, managed;
static unsigned char *host, *pageable;
static CUstream stream;
static unsigned long long moved[2]; /* to the device, from it */

static void to(size_t bytes, CUresult result) {
  CHECK(result);
  moved[0] += bytes;
}

static void from(size_t bytes, CUresult result) {
  CHECK(result);
  moved[1] += bytes;
}

static void copy_lines(void) {
  to(1001, cuMemcpyHtoD_v2(device, host, 1001));
  to(1002, cuMemcpyHtoD_v2(device, pageable, 1002));
  to(1003, cuMemcpyHtoDAsync_v2(device, host, 1003, stream));
  to(1004, cuMemcpyHtoDAsync_v2_ptsz(device, host, 1004, NULL));
  from(2001, cuMemcpyDtoH_v2(host, device, 2001));
  from(2002, cuMemcpyDtoH_v2_ptds(pageable, device, 2002));
  from(2003, cuMemcpyDtoHAsync_v2(host, device, 2003, stream));
  to(3001, cuMemcpy(device, (CUdeviceptr)host, 3001));
  from(3002, cuMemcpy((CUdeviceptr)pageable, device, 3002));
  to(3003, cuMemcpyAsync(device, (CUdeviceptr)pageable, 3003, stream));
  from(3004, cuMemcpyAsync((CUdeviceptr)host, device, 3004, stream));
  CHECK(cuMemcpyDtoD_v2(other, device, 4001));
  CHECK(cuMemcpyAsync(other, device, 4002, stream));
  CHECK(cuMemcpy((CUdeviceptr)pageable, (CUdeviceptr)host, 4003));
}

static void copy_shapes(void) {
  CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = host,
                        .srcPitch = 512,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = device,
                        .dstPitch = 512,
                        .WidthInBytes = 100,
                        .Height = 7};
  to(700, cuMemcpy2D_v2(&flat));
  to(700, cuMemcpy2DAsync_v2(&flat, stream));
  CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .srcDevice = device,
                        .srcPitch = 512,
                        .srcHeight = 8,
                        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .dstDevice = (CUdeviceptr)host,
                        .dstPitch = 512,
                        .dstHeight = 8,
                        .WidthInBytes = 50,
                        .Height = 3,
                        .Depth = 2};
  from(300, cuMemcpy3D_v2(&deep));
  from(300, cuMemcpy3DAsync_v2(&deep, stream));
  CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 4096, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CUarray array;
  CHECK(cuArrayCreate_v2(&array, &descriptor));
  to(401, cuMemcpyHtoA_v2(array, 0, host, 401));
  from(402, cuMemcpyAtoH_v2(host, array, 0, 402));
  CHECK(cuMemcpyDtoA_v2(array, 0, device, 403));
  CUdeviceptr ends[2][2] = {{device, (CUdeviceptr)host}, {(CUdeviceptr)host, device}};
  size_t bytes[2] = {501, 502}, run = 0;
  CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  CHECK(cuMemcpyBatchAsync_v2(ends[0], ends[1], bytes, 2, &attributes, &run, 1, stream));
  moved[0] += 501;
  moved[1] += 502;
  CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, away = {.type = CU_MEM_LOCATION_TYPE_HOST};
  to(8192, cuMemPrefetchAsync_v2(managed, 8192, here, 0, stream));
  from(4096, cuMemPrefetchAsync_v2(managed, 4096, away, 0, stream));
}

/* Becomes part of a graph, and moves nothing until that is launched. */
static void copy_by_graphs(void) {
  CUgraph graph, outer;
  CUgraphNode node;
  CUgraphExec exec;
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemcpyHtoDAsync_v2(device, host, 6001, stream));
  CHECK(cuMemcpyDtoHAsync_v2(host, device, 6002, stream));
  CHECK(cuMemcpyDtoDAsync_v2(other, device, 6003, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphCreate(&outer, 0));
  CHECK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph));
  CHECK(cuGraphInstantiateWithFlags(&exec, outer, 0));
  for (int i = 0; i < 3; i++) {
    to(6001, cuGraphLaunch(exec, stream));
    moved[1] += 6002;
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(outer));
  CHECK(cuGraphDestroy(graph));
}

int main(void) {
  begin();
  CHECK(cuMemAlloc_v2(&device, BYTES));
  CHECK(cuMemAlloc_v2(&other, BYTES));
  CHECK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuMemHostAlloc((void **)&host, BYTES, 0));
  pageable = calloc(1, BYTES);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  copy_lines();
  copy_shapes();
  copy_by_graphs();
  CHECK(cuMemHostRegister_v2((char *)aligned_alloc(PAGE, 2 * PAGE) + 100, PAGE, 0)); /* two pages */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(device, NULL, 7001));
  CHECK(cuCtxSynchronize());
  printf("{\"to\": %llu, \"from\": %llu, \"pinned\": %u}\n", moved[0], moved[1], BYTES + 2 * PAGE);
  fflush(stdout);
  return getchar() == EOF ? 0 : 0;
}
