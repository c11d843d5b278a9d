/* driver_names.h - the driver's entry points that the libraries of the simulated device use, one a line. */
#ifndef SC_DRIVER_NAMES_H
#define SC_DRIVER_NAMES_H

/* clang-format off */
#define SC_DRIVER_NAMES(X) \
  X(cuCtxGetCurrent) \
  X(cuCtxGetDevice) \
  X(cuCtxSetCurrent) \
  X(cuCtxSynchronize) \
  X(cuDeviceGet) \
  X(cuDeviceGetAttribute) \
  X(cuDeviceGetCount) \
  X(cuDeviceGetName) \
  X(cuDeviceGetPCIBusId) \
  X(cuDeviceGetUuid_v2) \
  X(cuDevicePrimaryCtxRetain) \
  X(cuInit) \
  X(cuLaunchKernel) \
  X(cuLibraryGetKernel) \
  X(cuLibraryLoadData) \
  X(cuMemAlloc_v2) \
  X(cuMemFree_v2) \
  X(cuMemHostRegister_v2) \
  X(cuMemHostUnregister) \
  X(cuMemcpyDtoDAsync_v2) \
  X(cuMemcpyDtoHAsync_v2) \
  X(cuMemsetD8Async) \
  X(cuStreamCreate) \
  X(cuStreamDestroy_v2) \
  X(cuStreamGetCtx) \
  X(cuStreamIsCapturing) \
  X(cuStreamWaitValue64_v2) \
  X(cuStreamWriteValue64_v2)
/* clang-format on */

#endif
