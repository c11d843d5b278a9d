/*
 * backing: host memory behind simulated memory is bounded: 2 GiB of device memory, 64 MiB of host memory for all
 * programs. Two processes, the second one begun by the first, which says when it has filled its part.
 */
#include "program.h"
#include <sys/wait.h>

#define MIB (1ull << 20)

static CUfunction fill_kernel(void) {
  static const char text[] =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry fill_i32(.param .u32 n, .param .u32 value, .param .u64 out)\n{\nret;\n}\n";
  CUmodule module;
  CUfunction fill;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&fill, module, "fill_i32"));
  return fill;
}

static void fill(CUfunction kernel, CUresult expected, CUdeviceptr to, unsigned long long bytes) {
  unsigned count = (unsigned)(bytes / 4), value = 3;
  void *params[] = {&count, &value, &to};
  EXPECT(expected, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  CHECK(cuCtxSynchronize());
}

static void launch_graph(CUresult expected, CUdeviceptr to, unsigned long long bytes) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CUcontext context;
  CUDA_MEMSET_NODE_PARAMS set = {.dst = to, .value = 1, .elementSize = 1, .width = bytes, .height = 1};
  CHECK(cuCtxGetCurrent(&context));
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT(expected, cuGraphLaunch(exec, NULL));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

static void *other_process(const char *self) {
  char command[512];
  snprintf(command, sizeof command, "%s second", self);
  TRUE(system(command) == 0);
  return NULL;
}

int main(int argc, char **argv) {
  CUdeviceptr block, pool, small;
  unsigned char value = 0;
  static unsigned char text[MIB];
  begin();
  CHECK(cuMemAlloc_v2(&block, 1024 * MIB)); /* allocating costs the host nothing */
  if (argc > 1) {                           /* the first process has 48 MiB of the 64 */
    CHECK(cuMemsetD8_v2(block, 1, 8 * MIB));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemsetD8_v2(block, 1, 32 * MIB));
    return 0;
  }
  CUfunction kernel = fill_kernel();
  for (int i = 0; i < 20; i++) CHECK(cuMemsetD8_v2(block, 7, 40 * MIB)); /* the same pages each time */
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemsetD8_v2(block, 1, 1024 * MIB));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemsetD2D32_v2(block, 8192, 1, 1024, 32768));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemcpyDtoD_v2(block + 512 * MIB, block, 40 * MIB));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemcpyDtoD_v2(block, block + 512 * MIB, 40 * MIB)); /* reading takes pages, too */
  CHECK(cuMemsetD2D32_v2(block + 512 * MIB, MIB, 1, 1, 512));                            /* a page of each MiB */
  fill(kernel, CUDA_ERROR_OUT_OF_MEMORY, block, 1024 * MIB);
  launch_graph(CUDA_ERROR_OUT_OF_MEMORY, block, 1024 * MIB);
  CHECK(cuMemcpyDtoH_v2(&value, block + 40 * MIB - 1, 1)); /* what was refused has touched nothing */
  TRUE(value == 7);
  CHECK(cuMemcpyHtoD_v2(block + 40 * MIB, text, MIB));
  fill(kernel, CUDA_SUCCESS, block, 41 * MIB);
  launch_graph(CUDA_SUCCESS, block, 41 * MIB);
  CHECK(cuMemFree_v2(block)); /* what is freed is there again: from pools, for others */
  CHECK(cuMemAllocAsync(&pool, 1024 * MIB, NULL));
  CHECK(cuMemsetD8Async(pool, 1, 48 * MIB, NULL));
  other_process(argv[0]);
  CHECK(cuMemFreeAsync(pool, NULL));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemAlloc_v2(&small, 1));
  CHECK(cuMemsetD8_v2(small, 1, 1));
  CHECK(cuMemAllocManaged(&block, 1024 * MIB, CU_MEM_ATTACH_GLOBAL));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemsetD8_v2(block, 1, 64 * MIB));
  memset((void *)block, 1, 8 * MIB); /* by the program itself: not refused, but counted from the next look on */
  CHECK(cuMemsetD8_v2(block, 1, 40 * MIB));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemsetD8_v2(block + 256 * MIB, 1, 40 * MIB));
  puts("ok");
}
