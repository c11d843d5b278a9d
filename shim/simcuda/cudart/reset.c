/* reset.c - cudaDeviceReset: the context of the current device ends with all that is in it. */
#include "simcuda/cudart/registry.h"

SC_PUBLIC cudaError_t cudaDeviceReset(void) {
  const struct sc_driver *driver;
  CUdevice device;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess) error = sc_current_device(driver, &device);
  if (error != cudaSuccess) return sc_end(error);
  if (device >= SC_DEVICES_MAX) return sc_end(cudaErrorInvalidDevice);
  sc_drop_primary_context(driver, device);
  sc_forget_variables(device);
  error = (cudaError_t)driver->cuDevicePrimaryCtxReset_v2(device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuCtxSetCurrent(NULL);
  return sc_end(error);
}
