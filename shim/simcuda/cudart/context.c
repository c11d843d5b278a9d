/*
 * context.c - the runtime's devices and contexts: each thread has a device, whose primary context becomes current at
 * the first call that needs one. A context that the program made current through the driver counts instead.
 */
#include "simcuda/cudart/runtime.h"
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t start_error = cudaErrorInsufficientDriver;
static CUcontext primaries[SC_DEVICES_MAX]; /* retained ones */
static __thread int thread_device;

/* The simulated driver is asked for zeros instead of what memory held before a kernel that computes nothing. */
static void start(void) {
  const struct sc_driver *driver = sc_driver();
  CUdriverProcAddressQueryResult status;
  void (*ask_for_zeros)(void) = NULL;
  if (driver == NULL) return;
  start_error = (cudaError_t)driver->cuInit(0);
  if (start_error != cudaSuccess) return;
  driver->cuGetProcAddress_v2(SC_SIMULATED_ENTRY, (void **)&ask_for_zeros, CUDA_VERSION, 0, &status);
  if (ask_for_zeros != NULL) ask_for_zeros();
}

cudaError_t sc_start(const struct sc_driver **ret_driver) {
  pthread_once(&once, start);
  *ret_driver = sc_driver();
  return start_error;
}

/* Two threads may both retain it: the one that comes second gives its own back. */
cudaError_t sc_primary_context(const struct sc_driver *driver, int device, CUcontext *ret_context) {
  if (device < 0 || device >= SC_DEVICES_MAX) return cudaErrorInvalidDevice;
  CUcontext context = __atomic_load_n(&primaries[device], __ATOMIC_ACQUIRE), none = NULL;
  if (context == NULL) {
    cudaError_t error = (cudaError_t)driver->cuDevicePrimaryCtxRetain(&context, device);
    if (error != cudaSuccess) return error;
    if (!__atomic_compare_exchange_n(&primaries[device], &none, context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      driver->cuDevicePrimaryCtxRelease_v2(device);
  }
  *ret_context = context;
  return cudaSuccess;
}

void sc_drop_primary_context(const struct sc_driver *driver, int device) {
  if (__atomic_exchange_n(&primaries[device], NULL, __ATOMIC_ACQ_REL) != NULL)
    driver->cuDevicePrimaryCtxRelease_v2(device);
}

static cudaError_t make_current(const struct sc_driver *driver, int device) {
  CUcontext context;
  cudaError_t error = sc_primary_context(driver, device, &context);
  return error == cudaSuccess ? (cudaError_t)driver->cuCtxSetCurrent(context) : error;
}

cudaError_t sc_enter(const struct sc_driver **ret_driver) {
  CUcontext context;
  cudaError_t error = sc_start(ret_driver);
  if (error == cudaSuccess) error = (cudaError_t)(*ret_driver)->cuCtxGetCurrent(&context);
  return error == cudaSuccess && context == NULL ? make_current(*ret_driver, thread_device) : error;
}

cudaError_t sc_current_device(const struct sc_driver *driver, CUdevice *ret_device) {
  CUcontext context;
  cudaError_t error = (cudaError_t)driver->cuCtxGetCurrent(&context);
  if (error != cudaSuccess) return error;
  *ret_device = thread_device;
  return context == NULL ? cudaSuccess : (cudaError_t)driver->cuCtxGetDevice(ret_device);
}

SC_PUBLIC cudaError_t cudaGetDevice(int *ret_device) {
  const struct sc_driver *driver;
  CUdevice device;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess && ret_device == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = sc_current_device(driver, &device);
  if (error == cudaSuccess) *ret_device = device;
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaSetDevice(int device) {
  const struct sc_driver *driver;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess) error = make_current(driver, device);
  if (error == cudaSuccess) thread_device = device;
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  const struct sc_driver *driver;
  CUcontext context;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess && flags > 1) error = cudaErrorInvalidValue;
  if (error == cudaSuccess && flags == 1)
    error = (cudaError_t)driver->cuDevicePrimaryCtxSetFlags_v2(device, device_flags);
  if (error == cudaSuccess) error = sc_primary_context(driver, device, &context);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaSetDeviceFlags(unsigned flags) {
  const struct sc_driver *driver;
  CUdevice device;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess) error = sc_current_device(driver, &device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDevicePrimaryCtxSetFlags_v2(device, flags);
  return sc_end(error);
}

/* Host memory can always be mapped, which the runtime says and the driver does not. */
SC_PUBLIC cudaError_t cudaGetDeviceFlags(unsigned *ret_flags) {
  const struct sc_driver *driver;
  CUdevice device;
  int active;
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess && ret_flags == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = sc_current_device(driver, &device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDevicePrimaryCtxGetState(device, ret_flags, &active);
  if (error == cudaSuccess) *ret_flags |= cudaDeviceMapHost;
  return sc_end(error);
}
