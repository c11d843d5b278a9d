/* features.cu - a program as users compile it (nvcc -cudart shared): what nvcc's own headers and stubs need. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) {                                                                                       \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                                \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define TRUE(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                                   \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static const int n = 1000;
__constant__ float factors[4] = {1, 2, 3, 4};
__device__ int counter = 7;
__device__ __managed__ int shared_value = 9;

extern "C" __global__ void saxpy(int count, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + y[i];
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define THREADS_MAX 128
#else
#define THREADS_MAX 512
#endif
/* Of the code for other devices, which has other limits, none counts. */
__global__ void __launch_bounds__(THREADS_MAX) limited(int *p) {
  p[threadIdx.x] = 1;
}

template <typename T> __global__ void touch(T *p) {
  *p = (T)(counter + (int)factors[1] + shared_value);
}

static void check_work() {
  float *x, *y, *host, one = 0;
  CHECK(cudaMalloc(&x, n * sizeof *x));
  CHECK(cudaMalloc(&y, n * sizeof *y));
  CHECK(cudaMallocHost(&host, n * sizeof *host));
  for (int i = 0; i < n; i++) host[i] = i;
  CHECK(cudaMemcpy(x, host, n * sizeof *x, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(y, 0, n * sizeof *y));
  saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&one, y + 100, sizeof one, cudaMemcpyDeviceToHost));
  TRUE(one == 200);

  cudaStream_t stream;
  cudaEvent_t start, end;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  float ms;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  saxpy<<<4, 256, 0, stream>>>(n, 1.0f, x, y);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaEventRecord(start, stream));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventElapsedTime(&ms, start, end));
  CHECK(cudaMemcpy(&one, y + 100, sizeof one, cudaMemcpyDeviceToHost));
  TRUE(ms > 0 && one == 300);
  saxpy<<<1, 2048>>>(n, 1.0f, x, y);
  TRUE(cudaGetLastError() == cudaErrorInvalidConfiguration);
  void *args[] = {(void *)&n, &one, &x, &y};
  CHECK(cudaLaunchKernel(saxpy, dim3(4), dim3(256), args, 0, cudaStreamPerThread));
  void *same;
  CHECK(cudaHostGetDevicePointer(&same, host, 0));
  TRUE(same == host);
  CHECK(cudaFreeHost(host));
}

static void check_variables() {
  float read[4];
  int value;
  CHECK(cudaMemcpyFromSymbol(read, factors, sizeof read));
  TRUE(read[0] == 1 && read[3] == 4);
  CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  TRUE(value == 7 && shared_value == 9);
  value = 11;
  CHECK(cudaMemcpyToSymbol(counter, &value, sizeof value));
  CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  TRUE(value == 11);
}

static void check_shapes() {
  unsigned char host[1000];
  void *rows;
  size_t pitch;
  CHECK(cudaMallocPitch(&rows, &pitch, 100, 10));
  CHECK(cudaMemset2D(rows, pitch, 3, 100, 10));
  CHECK(cudaMemcpy2D(host, 100, rows, pitch, 100, 10, cudaMemcpyDeviceToHost));
  TRUE(pitch >= 100 && host[999] == 3);
  cudaExtent extent = make_cudaExtent(16, 4, 2);
  cudaPitchedPtr box;
  CHECK(cudaMalloc3D(&box, extent));
  CHECK(cudaMemset3D(box, 5, extent));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = box;
  copy.dstPtr = make_cudaPitchedPtr(host, 16, 16, 4);
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&copy));
  TRUE(host[127] == 5);
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  float line[16] = {0, 1, 2, 3}, back[16];
  CHECK(cudaMallocArray(&array, &format, 16));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, line, sizeof line, sizeof line, 1, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2DFromArray(back, sizeof back, array, 0, 0, sizeof back, 1, cudaMemcpyDeviceToHost));
  TRUE(back[3] == 3);
  CHECK(cudaFreeArray(array));
}

static void check_questions() {
  cudaDeviceProp properties;
  cudaFuncAttributes attributes;
  int blocks, grid, block;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  TRUE(properties.major == 9 && properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
  TRUE(properties.sharedMemPerBlockOptin > properties.sharedMemPerBlock && properties.clusterLaunch == 1);
  CHECK(cudaFuncGetAttributes(&attributes, touch<int>));
  CHECK(cudaFuncSetAttribute(saxpy, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, saxpy, 256, 0));
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, saxpy));
  TRUE(attributes.maxThreadsPerBlock > 0 && blocks > 0 && grid > 0 && block > 0);
}

int main() {
  check_work();
  check_variables();
  check_shapes();
  check_questions();
  int *value, *managed, read = 1;
  CHECK(cudaMalloc(&value, 512 * sizeof *value));
  limited<<<1, 512>>>(value);
  CHECK(cudaGetLastError());
  touch<<<1, 1>>>(value);
  CHECK(cudaMemcpy(&read, value, sizeof read, cudaMemcpyDeviceToHost));
  TRUE(read == 0);
  CHECK(cudaMallocManaged(&managed, sizeof *managed));
  *managed = 4;
  CHECK(cudaFree(managed));
  CHECK(cudaDeviceReset());
  CHECK(cudaMemcpyFromSymbol(&read, counter, sizeof read));
  TRUE(read == 7);
  puts("ok");
  return 0;
}
