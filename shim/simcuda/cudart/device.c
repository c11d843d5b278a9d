/* device.c - questions about devices, their limits and their peers. */
#include "simcuda/cudart/runtime.h"

SC_PUBLIC cudaError_t cudaGetDeviceCount(int *ret_count) {
  const struct sc_driver *driver;
  if (ret_count == NULL) return sc_end(cudaErrorInvalidValue);
  *ret_count = 0;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDeviceGetCount(ret_count);
  if (error == cudaSuccess && *ret_count == 0) error = cudaErrorNoDevice;
  return sc_end(error);
}

/* The numbers of attributes are the driver's. */
SC_PUBLIC cudaError_t cudaDeviceGetAttribute(int *ret_value, int attribute, int device) {
  return SC_ASK(cuDeviceGetAttribute, ret_value, (CUdevice_attribute)attribute, device);
}

SC_PUBLIC cudaError_t cudaDeviceGetPCIBusId(char *ret_text, int length, int device) {
  return SC_ASK(cuDeviceGetPCIBusId, ret_text, length, device);
}

SC_PUBLIC cudaError_t cudaDeviceGetByPCIBusId(int *ret_device, const char *text) {
  return SC_ASK(cuDeviceGetByPCIBusId, ret_device, text);
}

SC_PUBLIC cudaError_t cudaDeviceGetStreamPriorityRange(int *ret_least, int *ret_greatest) {
  return SC_CALL(cuCtxGetStreamPriorityRange, ret_least, ret_greatest);
}

SC_PUBLIC cudaError_t cudaDeviceSynchronize(void) {
  return SC_CALL(cuCtxSynchronize);
}

SC_PUBLIC cudaError_t cudaDeviceGetLimit(size_t *ret_value, int limit) {
  return SC_CALL(cuCtxGetLimit, ret_value, (CUlimit)limit);
}

SC_PUBLIC cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
  return SC_CALL(cuCtxSetLimit, (CUlimit)limit, value);
}

SC_PUBLIC cudaError_t cudaDeviceGetCacheConfig(CUfunc_cache *ret_config) {
  return SC_CALL(cuCtxGetCacheConfig, ret_config);
}

SC_PUBLIC cudaError_t cudaDeviceSetCacheConfig(CUfunc_cache config) {
  return SC_CALL(cuCtxSetCacheConfig, config);
}

SC_PUBLIC cudaError_t cudaDriverGetVersion(int *ret_version) {
  const struct sc_driver *driver = sc_driver();
  if (ret_version == NULL) return sc_end(cudaErrorInvalidValue);
  *ret_version = 0; /* what the runtime says where there is no driver */
  return sc_end(driver == NULL ? cudaSuccess : (cudaError_t)driver->cuDriverGetVersion(ret_version));
}

SC_PUBLIC cudaError_t cudaProfilerStart(void) {
  return SC_CALL(cuProfilerStart);
}

SC_PUBLIC cudaError_t cudaProfilerStop(void) {
  return SC_CALL(cuProfilerStop);
}

SC_PUBLIC cudaError_t cudaDeviceCanAccessPeer(int *ret_can, int device, int peer) {
  return SC_ASK(cuDeviceCanAccessPeer, ret_can, device, peer);
}

SC_PUBLIC cudaError_t cudaDeviceGetP2PAttribute(int *ret_value, int attribute, int device, int peer) {
  return SC_ASK(cuDeviceGetP2PAttribute, ret_value, (CUdevice_P2PAttribute)attribute, device, peer);
}

SC_PUBLIC cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const struct sc_driver *driver;
  CUcontext context;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_primary_context(driver, peer, &context);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuCtxEnablePeerAccess(context, flags);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  const struct sc_driver *driver;
  CUcontext context;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_primary_context(driver, peer, &context);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuCtxDisablePeerAccess(context);
  return sc_end(error);
}
