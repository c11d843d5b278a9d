/* driver_names.h - the driver's entry points that the libraries of the simulated device use, one a line. */
#ifndef SC_DRIVER_NAMES_H
#define SC_DRIVER_NAMES_H

/* clang-format off */
#define SC_DRIVER_NAMES(X) \
  X(cuCtxGetCurrent) \
  X(cuCtxGetDevice) \
  X(cuCtxSetCurrent) \
  X(cuDeviceGet) \
  X(cuDeviceGetAttribute) \
  X(cuDeviceGetCount) \
  X(cuDeviceGetName) \
  X(cuDevicePrimaryCtxRetain) \
  X(cuInit) \
  X(cuLaunchKernel) \
  X(cuLibraryGetKernel) \
  X(cuLibraryLoadData) \
  X(cuMemcpyDtoDAsync_v2) \
  X(cuMemsetD8Async) \
  X(cuStreamGetCtx)
/* clang-format on */

#endif
