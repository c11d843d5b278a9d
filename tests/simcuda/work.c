/* work.c - a whole program of the CUDA runtime: kernels, variables, streams, events, graphs. Prints what it found. */
#include "stub.h"

#define N 1000

static float *device_array(float first, float step) {
  float host[N], *array;
  for (int i = 0; i < N; i++) host[i] = first + step * (float)i;
  CHECK(cudaMalloc((void **)&array, sizeof host));
  CHECK(cudaMemcpy(array, host, sizeof host, cudaMemcpyHostToDevice));
  return array;
}

static float read_one(const float *array, int index) {
  float value;
  CHECK(cudaMemcpy(&value, array + index, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

static void run_saxpy(float *x, float *y, CUstream stream) {
  int n = N;
  float a = 2;
  void *arguments[] = {&n, &a, &x, &y};
  CHECK(launch(saxpy, 4, 256, arguments, stream));
}

/* As nvcc's stub of CUDA 13 launches. */
static void run_by_handle(float *x, float *out) {
  CUkernel kernel;
  dim3 grid, block;
  size_t shared;
  CUstream stream;
  int n = N;
  void *arguments[] = {&n, &x, &out};
  CHECK(__cudaGetKernel(&kernel, reduce_f32));
  TRUE(__cudaPushCallConfiguration((dim3){1, 1, 1}, (dim3){32, 1, 1}, 0, NULL) == 0);
  CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  CHECK(__cudaLaunchKernel(kernel, grid, block, arguments, shared, stream));
}

static void check_variables(void) {
  int value, *address, zeros[256];
  size_t bytes;
  CHECK(cudaMemcpyFromSymbol(&value, counter, 4, 0, cudaMemcpyDeviceToHost));
  printf("counter %d\n", value);
  value = 11;
  CHECK(cudaMemcpyToSymbol(counter, &value, 4, 0, cudaMemcpyHostToDevice));
  CHECK(cudaGetSymbolAddress((void **)&address, counter));
  CHECK(cudaMemcpy(&value, address, 4, cudaMemcpyDeviceToHost));
  CHECK(cudaGetSymbolSize(&bytes, table));
  CHECK(cudaMemcpyFromSymbol(zeros, table, sizeof zeros, 0, cudaMemcpyDeviceToHost));
  TRUE(__cudaInitModule(stub_handle));
  printf("counter %d, table of %zu bytes, %d, managed %d\n", value, bytes, zeros[255], shared_value[0]);
  CHECK(cudaDeviceReset());
  CHECK(cudaMemcpyFromSymbol(&value, counter, 4, 0, cudaMemcpyDeviceToHost));
  printf("counter %d after a reset\n", value);
}

static void check_graphs(float *x, float *y) {
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  int n = N;
  float a = 2;
  void *arguments[] = {&n, &a, &x, &y};
  struct cudaKernelNodeParams got, params = {saxpy, {4, 1, 1}, {256, 1, 1}, 0, arguments, NULL};
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, 0));
  run_saxpy(x, y, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &params));
  CHECK(cudaGraphKernelNodeGetParams(node, &got));
  TRUE(got.func == saxpy && got.gridDim.x == 4 && got.blockDim.x == 256);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  printf("y[100] %g after a graph\n", read_one(y, 100));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}

static void check_events(float *x, float *y) {
  CUevent start, end;
  float ms;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(start, NULL));
  run_saxpy(x, y, NULL);
  CHECK(cudaEventRecord(end, NULL));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaEventElapsedTime(&ms, start, end));
  printf("time %s\n", ms > 0 ? "passes" : "stands");
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(end));
}

static void check_questions(float *x) {
  struct cudaFuncAttributes attributes;
  struct cudaPointerAttributes pointer;
  int blocks, major;
  void *host;
  CHECK(cudaFuncGetAttributes(&attributes, saxpy));
  CHECK(cudaFuncSetAttribute(saxpy, 8, 1024));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, saxpy, 256, 0));
  CHECK(cudaDeviceGetAttribute(&major, 75, 0));
  printf("threads %d, blocks %d, capability %d\n", attributes.maxThreadsPerBlock, blocks, major);
  CHECK(cudaHostAlloc(&host, 64, 0));
  CHECK(cudaPointerGetAttributes(&pointer, x + 1));
  printf("pointers %d %d", pointer.type, pointer.device);
  CHECK(cudaPointerGetAttributes(&pointer, host));
  printf(" %d", pointer.type);
  CHECK(cudaPointerGetAttributes(&pointer, &pointer));
  printf(" %d %d\n", pointer.type, pointer.device);
  CHECK(cudaFreeHost(host));
}

int main(void) {
  float *x = device_array(0, 1), *y = device_array(0, 0), *sum;
  run_saxpy(x, y, NULL);
  printf("y[100] %g\n", read_one(y, 100));
  CHECK(cudaMalloc((void **)&sum, 4));
  run_by_handle(x, sum);
  printf("sum %g\n", read_one(sum, 0));
  check_graphs(x, y);
  check_events(x, y);
  check_questions(x);
  check_variables();
  return 0;
}
