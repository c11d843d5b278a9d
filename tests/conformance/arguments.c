/*
 * arguments: what calls answer to arguments that cannot be right, and that they change nothing then.
 */
#include "row.h"

static void device_arguments(void) {
  CUdevice device = UNTOUCHED;
  size_t bytes = UNTOUCHED;
  int value = UNTOUCHED;
  char name[8] = "before";
  CODE("before_init", cuDeviceGet(&device, 0));
  NEED(cuInit(0));
  CODE("device", cuDeviceGet(&device, 99));
  CODE("negative", cuDeviceGet(&device, -1));
  CODE("null", cuDeviceGet(NULL, 0));
  CODE("attribute", cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0));
  CODE("attribute_of", cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
  CODE("total", cuDeviceTotalMem_v2(&bytes, 99));
  CODE("name", cuDeviceGetName(name, sizeof name, 99));
  CODE("count", cuDeviceGetCount(NULL));
  fact("untouched", device == UNTOUCHED && value == UNTOUCHED && bytes == UNTOUCHED && strcmp(name, "before") == 0);
}

static void copy_arguments(void) {
  char host[64] = "abc";
  CUdeviceptr block;
  begin();
  NEED(cuMemAlloc_v2(&block, 64));
  CODE("nothing", cuMemcpyHtoD_v2(block, host, 0));
  CODE("to_nowhere", cuMemcpyHtoD_v2(0x10, host, 8));
  CODE("from_nowhere", cuMemcpyDtoH_v2(host, 0x10, 8));
  CODE("set_nowhere", cuMemsetD8_v2(0x10, 0, 8));
  CODE("odd_16", cuMemsetD16_v2(block + 1, 0, 4));
  CODE("still_works", cuMemcpyHtoD_v2(block, host, 8));
}

static void stream_arguments(void) {
  CUevent event;
  CUstream stream;
  begin();
  NEED(cuStreamCreate(&stream, 0));
  NEED(cuEventCreate(&event, 0));
  CODE("no_event", cuEventRecord(NULL, stream));
  CODE("no_event", cuStreamWaitEvent(stream, NULL, 0));
  CODE("flags", cuStreamWaitEvent(stream, event, 0x100));
  CODE("no_event", cuEventQuery(NULL));
  CODE("no_event", cuEventDestroy_v2(NULL));
  CODE("record_flags", cuEventRecordWithFlags(event, stream, 0x100));
  CODE("no_function", cuLaunchHostFunc(stream, NULL, NULL));
  CODE("still_works", cuEventRecord(event, stream));
}

static void context_arguments(void) {
  size_t bytes = UNTOUCHED;
  CUcontext context;
  begin();
  NEED(cuCtxGetCurrent(&context));
  CODE("limit", cuCtxGetLimit(&bytes, (CUlimit)99));
  CODE("set_limit", cuCtxSetLimit((CUlimit)99, 1));
  fact("none_refused", cuCtxDestroy_v2(NULL) != CUDA_SUCCESS);
  fact("untouched", bytes == UNTOUCHED);
  CODE("still_works", cuCtxSynchronize());
}

static void memory_arguments(void) {
  CUdeviceptr block = UNTOUCHED;
  size_t pitch = UNTOUCHED;
  CUmemoryPool pool;
  unsigned value = UNTOUCHED;
  begin();
  CODE("no_rows", cuMemAllocPitch_v2(&block, &pitch, 64, 0, 4));
  CODE("element", cuMemAllocPitch_v2(&block, &pitch, 64, 4, 3));
  CODE("managed_flags", cuMemAllocManaged(&block, 64, 0));
  CODE("managed_nothing", cuMemAllocManaged(&block, 0, CU_MEM_ATTACH_GLOBAL));
  CODE("pool_null", cuMemAllocFromPoolAsync(&block, 64, NULL, NULL));
  CODE("pool_of", cuDeviceGetDefaultMemPool(&pool, 99));
  CODE("attribute", cuPointerGetAttribute(&value, (CUpointer_attribute)9999, 0x10));
  fact("untouched", block == UNTOUCHED && pitch == UNTOUCHED);
}

static void graph_arguments(void) {
  CUgraph graph;
  CUgraphNode node = NULL;
  CUgraphExec exec = NULL;
  CUcontext context;
  CUDA_MEMSET_NODE_PARAMS params = {.dst = 0, .elementSize = 3, .width = 1, .height = 1};
  begin();
  NEED(cuCtxGetCurrent(&context));
  NEED(cuGraphCreate(&graph, 0));
  CODE("no_graph", cuGraphAddEmptyNode(&node, NULL, NULL, 0));
  CODE("no_array", cuGraphAddEmptyNode(&node, graph, NULL, 1));
  CODE("element", cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context));
  CODE("no_params", cuGraphAddMemsetNode(&node, graph, NULL, 0, NULL, context));
  CODE("no_graph", cuGraphInstantiateWithFlags(&exec, NULL, 0));
  fact("untouched", node == NULL && exec == NULL);
  CODE("still_works", cuGraphAddEmptyNode(&node, graph, NULL, 0));
}

ROWS(ROW(device_arguments), ROW(copy_arguments), ROW(stream_arguments), ROW(context_arguments), ROW(memory_arguments),
     ROW(graph_arguments))
