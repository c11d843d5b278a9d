/* strict CASE: does one wrong thing, or none (clean), and ends with 0: for test_strict.py. */
#include "program.h"
#include <stdbool.h>

#define MIB (1u << 20)

static CUcontext context;
static const char *which;

static bool is(const char *name) {
  return strcmp(which, name) == 0;
}

static CUfunction with_pointer(CUmodule *ret_module) {
  CUfunction function;
  CHECK(cuModuleLoadData(ret_module, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry "
                                     "spin_10(.param .u32 n, .param .u64 p)\n{\nret;\n}\n"));
  CHECK(cuModuleGetFunction(&function, *ret_module, "spin_10"));
  return function;
}

static void use(CUdeviceptr pointer, CUstream stream) {
  CUmodule module;
  CUfunction function = with_pointer(&module);
  unsigned n = 3;
  CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&n, &pointer}, NULL));
  CHECK(cuModuleUnload(module));
}

static void memory(CUstream stream) {
  CUdeviceptr pointer, pooled;
  static char host[2 * MIB];
  CHECK(cuMemAlloc_v2(&pointer, MIB));
  CHECK(cuMemAllocAsync(&pooled, MIB, stream));
  CHECK(cuMemcpyHtoD_v2(pointer, host, MIB));
  CHECK(cuMemcpy((CUdeviceptr)host, pointer, MIB));
  CHECK(cuMemsetD8Async(pooled, 1, MIB, stream));
  use(pointer, stream);
  if (is("beyond")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, pointer + MIB / 2, MIB));
  if (is("middle")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer + 256));
  if (is("leak")) return;
  CHECK(cuMemFree_v2(pointer));
  CHECK(cuMemFreeAsync(pooled, stream));
  if (is("memset")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(pointer, 0, 16));
  if (is("copy")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync((CUdeviceptr)host, pointer + 16, 16, stream));
  if (is("pool")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(pooled, pooled + 16, 16, stream));
  if (is("launch")) use(pointer + 4, stream);
  if (is("twice")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
}

static void handles(CUstream stream) {
  CUevent event, other_event;
  CUcontext other;
  CUstream other_stream;
  CUgraph graph, clone;
  CUgraphExec exec;
  CUgraphNode node;
  CUmodule module;
  CHECK(cuEventCreate(&event, 0));
  CHECK(cuEventRecord(event, stream));
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
  CHECK(cuGraphClone(&clone, graph));
  CHECK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, clone));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK(cuGraphLaunch(exec, stream));
  CUfunction function = with_pointer(&module);
  CHECK(cuCtxCreate_v2(&other, 0, 0));
  CHECK(cuEventCreate(&other_event, 0));
  CHECK(cuStreamCreate(&other_stream, 0));
  if (is("wrong_event")) EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, other_stream));
  if (is("wrong_function"))
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other_stream, (void *[]){&module, &module}, NULL));
  CHECK(cuCtxDestroy_v2(other));
  if (is("event")) EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(other_event));
  if (is("context")) EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(other));
  if (is("leak")) return;
  CHECK(cuModuleUnload(module));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuGraphDestroy(clone));
  CHECK(cuEventDestroy_v2(event));
  if (is("graph")) EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
}

int main(int argc, char **argv) {
  CUstream stream;
  which = argc > 1 ? argv[1] : "clean";
  context = begin();
  CHECK(cuStreamCreate(&stream, 0));
  memory(stream);
  handles(stream);
  CHECK(cuMemcpyDtoDAsync_v2_ptsz(0, 0, 0, CU_STREAM_PER_THREAD)); /* a default stream is not given back */
  CHECK(cuStreamSynchronize(stream));
  if (is("leak")) return 0;
  CHECK(cuStreamDestroy_v2(stream));
  if (is("stream")) EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
  CHECK(cuCtxDestroy_v2(context));
  return 0;
}
