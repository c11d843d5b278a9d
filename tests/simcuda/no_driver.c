/* no_driver.c - what a program of the runtime learns where there is no driver. */
#include "stub.h"

int main(void) {
  int count = 7, version = 7;
  void *pointer;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) puts("found a driver");
  puts(cudaGetErrorName(error));
  TRUE(count == 0 && cudaRuntimeGetVersion(&version) == cudaSuccess);
  TRUE(cudaMalloc(&pointer, 4) == error && cudaSetDevice(0) == error && launch(train, 1, 1, NULL, NULL) == error);
  return 0;
}
