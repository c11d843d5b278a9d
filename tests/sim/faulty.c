/* Allocates and frees a few times and prints the codes: for test_faults.py. */
#include "program.h"

int main(void) {
  CUdevice device;
  CUcontext context;
  printf("init %d\n", cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr pointer = 0;
  for (int i = 0; i < 3; i++) {
    printf("alloc %d\n", cuMemAlloc_v2(&pointer, 1 << 20));
    printf("free %d\n", cuMemFree_v2(pointer));
    printf("again %d\n", cuMemFree_v2(pointer));
  }
  printf("async %d\n", cuMemAllocAsync_ptsz(&pointer, 1 << 20, NULL));
  return 0;
}
