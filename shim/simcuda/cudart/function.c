/* function.c - attributes of kernels, and how many blocks of one fit on a multiprocessor. */
#include "simcuda/cudart/registry.h"

static cudaError_t begin(const struct sc_driver **ret_driver, const void *name, CUkernel *ret_kernel,
                         CUdevice *ret_device) {
  cudaError_t error = sc_enter(ret_driver);
  if (error == cudaSuccess) error = sc_find_kernel(*ret_driver, name, ret_kernel);
  return error == cudaSuccess ? sc_current_device(*ret_driver, ret_device) : error;
}

SC_PUBLIC cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *ret_attributes, const void *name) {
  const struct sc_driver *driver;
  CUkernel kernel;
  CUdevice device;
  if (ret_attributes == NULL) return sc_end(cudaErrorInvalidValue);
  cudaError_t error = begin(&driver, name, &kernel, &device);
  int values[CU_FUNC_ATTRIBUTE_MAX] = {0};
  for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX && error == cudaSuccess; i++)
    error = (cudaError_t)driver->cuKernelGetAttribute(&values[i], (CUfunction_attribute)i, kernel, device);
  if (error != cudaSuccess) return sc_end(error);
  *ret_attributes = (struct cudaFuncAttributes){
      .sharedSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
      .constSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
      .localSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
      .maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
      .numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS],
      .ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION],
      .binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
      .cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
      .maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
      .preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
      .clusterDimMustBeSet = values[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET],
      .requiredClusterWidth = values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
      .requiredClusterHeight = values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT],
      .requiredClusterDepth = values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH],
      .clusterSchedulingPolicyPreference = values[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE],
      .nonPortableClusterSizeAllowed = values[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED],
  };
  return cudaSuccess;
}

/* The numbers of attributes are the driver's. */
SC_PUBLIC cudaError_t cudaFuncSetAttribute(const void *name, int attribute, int value) {
  const struct sc_driver *driver;
  CUkernel kernel;
  CUdevice device;
  cudaError_t error = begin(&driver, name, &kernel, &device);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuKernelSetAttribute((CUfunction_attribute)attribute, value, kernel, device);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaKernelSetAttributeForDevice(CUkernel name, int attribute, int value, int device) {
  const struct sc_driver *driver;
  CUkernel kernel;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_find_kernel(driver, name, &kernel);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuKernelSetAttribute((CUfunction_attribute)attribute, value, kernel, device);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaFuncSetCacheConfig(const void *name, CUfunc_cache config) {
  const struct sc_driver *driver;
  CUkernel kernel;
  CUdevice device;
  cudaError_t error = begin(&driver, name, &kernel, &device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuKernelSetCacheConfig(kernel, config, device);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaFuncGetName(const char **ret_text, const void *name) {
  const struct sc_driver *driver;
  CUkernel kernel;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_find_kernel(driver, name, &kernel);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuKernelGetName(ret_text, kernel);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaFuncGetParamInfo(const void *name, size_t index, size_t *ret_offset, size_t *ret_bytes) {
  const struct sc_driver *driver;
  CUkernel kernel;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_find_kernel(driver, name, &kernel);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuKernelGetParamInfo(kernel, index, ret_offset, ret_bytes);
  return sc_end(error);
}

/* The driver's kernel, which its own entry points take. */
SC_PUBLIC cudaError_t cudaGetKernel(CUkernel *ret_kernel, const void *name) {
  const struct sc_driver *driver;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && ret_kernel == NULL) error = cudaErrorInvalidValue;
  return sc_end(error == cudaSuccess ? sc_find_kernel(driver, name, ret_kernel) : error);
}

SC_PUBLIC cudaError_t cudaGetFuncBySymbol(CUfunction *ret_function, const void *name) {
  const struct sc_driver *driver;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && ret_function == NULL) error = cudaErrorInvalidValue;
  return sc_end(error == cudaSuccess ? sc_find_function(driver, name, ret_function) : error);
}

SC_PUBLIC cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret_blocks, const void *name,
                                                                             int block_threads, size_t shared_bytes,
                                                                             unsigned flags) {
  const struct sc_driver *driver;
  CUfunction function;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_find_function(driver, name, &function);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        ret_blocks, function, block_threads, shared_bytes, flags);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *ret_blocks, const void *name,
                                                                    int block_threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(ret_blocks, name, block_threads, shared_bytes, 0);
}

SC_PUBLIC cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *ret_bytes, const void *name, int blocks,
                                                                int block_threads) {
  const struct sc_driver *driver;
  CUfunction function;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_find_function(driver, name, &function);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuOccupancyAvailableDynamicSMemPerBlock(ret_bytes, function, blocks, block_threads);
  return sc_end(error);
}
