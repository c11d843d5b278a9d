/*
 * function.c - questions about functions and kernels: attributes, names, parameters, occupancy. Called by programs and
 * by library.c and launch_make.c. The limits are those of compute capability 9.0 (module.h).
 */
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

static int min_int(int a, int b) {
  return a < b ? a : b;
}

/* Registers are handed out to warps in units of 256. */
static int warp_registers(const struct sim_function *function) {
  int registers = function->kernel.registers * 32;
  return (registers + 255) / 256 * 256;
}

int sim_function_max_threads(const struct sim_function *function) {
  int limit = SIM_BLOCK_THREADS_MAX;
  int wanted = function->kernel.max_threads;
  if (function->kernel.registers > 0) limit = min_int(limit, SIM_SM_REGISTERS / warp_registers(function) * 32);
  return wanted > 0 ? min_int(limit, wanted) : limit;
}

CUresult sim_function_attribute(const struct sim_function *function, CUfunction_attribute attribute, int *ret_value) {
  const struct sim_settings *settings = function->settings;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *ret_value = sim_function_max_threads(function);
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    *ret_value = function->kernel.shared_bytes;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_NUM_REGS:
    *ret_value = function->kernel.registers;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION:
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    *ret_value = SIM_ARCHITECTURE;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *ret_value = settings->dynamic_shared_bytes;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    *ret_value = settings->carveout;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    *ret_value = settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    *ret_value = settings->nonportable_cluster;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    *ret_value = settings->cluster_policy;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
  case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    *ret_value = 0; /* no image says otherwise */
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult sim_function_set_attribute(struct sim_function *function, CUfunction_attribute attribute, int value) {
  struct sim_settings *settings = function->settings;
  int shared_limit = SIM_BLOCK_SHARED_OPTIN_BYTES - (int)function->kernel.shared_bytes;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    if (value < 0 || value > shared_limit) return CUDA_ERROR_INVALID_VALUE;
    settings->dynamic_shared_bytes = value;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    settings->carveout = value;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    if (value < 0) return CUDA_ERROR_INVALID_VALUE;
    settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    settings->nonportable_cluster = value != 0;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    settings->cluster_policy = value;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

static CUresult enter(CUfunction handle, struct sim_function **ret_function) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  *ret_function = sim_function_find(handle);
  return *ret_function == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuFuncGetAttribute(int *ret_value, CUfunction_attribute attribute, CUfunction handle) {
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  return ret_value == NULL ? CUDA_ERROR_INVALID_VALUE : sim_function_attribute(function, attribute, ret_value);
}

SIM_PUBLIC CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  return result != CUDA_SUCCESS ? result : sim_function_set_attribute(function, attribute, value);
}

SIM_PUBLIC CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  (void)config; /* a hint, and this device has no caches */
  struct sim_function *function;
  return enter(handle, &function);
}

SIM_PUBLIC CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  (void)config; /* without effect on every device since compute capability 5 */
  struct sim_function *function;
  return enter(handle, &function);
}

SIM_PUBLIC CUresult cuFuncGetModule(CUmodule *ret_module, CUfunction handle) {
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_module == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (function->module == NULL) return CUDA_ERROR_INVALID_HANDLE; /* a CUkernel is in no module */
  *ret_module = (CUmodule)function->module;
  return CUDA_SUCCESS;
}

/* NULL is an invalid value here, and an invalid handle elsewhere. */
SIM_PUBLIC CUresult cuFuncGetName(const char **ret_name, CUfunction handle) {
  struct sim_function *function;
  if (ret_name == NULL || handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  *ret_name = function->kernel.name;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *ret_offset, size_t *ret_bytes) {
  struct sim_function *function;
  if (handle == NULL || ret_offset == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (index >= function->kernel.param_count) return CUDA_ERROR_INVALID_VALUE;
  *ret_offset = function->kernel.params[index].offset_bytes;
  if (ret_bytes != NULL) *ret_bytes = function->kernel.params[index].size_bytes;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuFuncIsLoaded(CUfunctionLoadingState *ret_state, CUfunction handle) {
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_state == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuFuncLoad(CUfunction handle) {
  struct sim_function *function;
  return enter(handle, &function);
}

static int blocks_of_sm(const struct sim_function *function, int block_threads, size_t dynamic_shared_bytes) {
  int warps = (block_threads + 31) / 32, blocks = SIM_SM_BLOCKS;
  if (block_threads > sim_function_max_threads(function)) return 0;
  blocks = min_int(blocks, SIM_SM_THREADS / (warps * 32));
  if (function->kernel.registers > 0) blocks = min_int(blocks, SIM_SM_REGISTERS / (warp_registers(function) * warps));
  size_t shared = function->kernel.shared_bytes + dynamic_shared_bytes + SIM_BLOCK_SHARED_RESERVED_BYTES;
  size_t by_shared = SIM_SM_SHARED_BYTES / shared;
  return by_shared < (size_t)blocks ? (int)by_shared : blocks;
}

SIM_PUBLIC CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret_blocks, CUfunction handle,
                                                                         int block_threads, size_t shared_bytes,
                                                                         unsigned flags) {
  (void)flags; /* cache behaviour only */
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_blocks == NULL || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *ret_blocks = blocks_of_sm(function, block_threads, shared_bytes);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret_blocks, CUfunction handle, int block_threads,
                                                                size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(ret_blocks, handle, block_threads, shared_bytes, 0);
}

SIM_PUBLIC CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *ret_grid, int *ret_block, CUfunction handle,
                                                              CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                                              int block_limit, unsigned flags) {
  (void)flags;
  struct sim_function *function;
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_grid == NULL || ret_block == NULL) return CUDA_ERROR_INVALID_VALUE;
  int most = sim_function_max_threads(function), best = 0;
  if (block_limit > 0) most = min_int(most, block_limit);
  for (int block = (most + 31) / 32 * 32; block > 0; block -= 32) { /* the largest block among the best */
    int threads = min_int(block, most);
    size_t shared = shared_of_block != NULL ? shared_of_block(threads) : shared_bytes;
    int blocks = blocks_of_sm(function, threads, shared);
    if (blocks * threads <= best) continue;
    best = blocks * threads;
    *ret_block = threads;
    *ret_grid = blocks * sim_device(context->ordinal)->sm_count;
  }
  return best > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuOccupancyMaxPotentialBlockSize(int *ret_grid, int *ret_block, CUfunction handle,
                                                     CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                                     int block_limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(ret_grid, ret_block, handle, shared_of_block, shared_bytes,
                                                   block_limit, 0);
}

SIM_PUBLIC CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *ret_bytes, CUfunction handle, int blocks,
                                                            int block_threads) {
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_bytes == NULL || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (blocks_of_sm(function, block_threads, 0) < blocks) return CUDA_ERROR_INVALID_VALUE;
  size_t each = SIM_SM_SHARED_BYTES / blocks, taken = SIM_BLOCK_SHARED_RESERVED_BYTES + function->kernel.shared_bytes;
  size_t most = SIM_BLOCK_SHARED_OPTIN_BYTES - function->kernel.shared_bytes;
  size_t left = each > taken ? each - taken : 0;
  *ret_bytes = left < most ? left : most;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuOccupancyMaxPotentialClusterSize(int *ret_size, CUfunction handle, const CUlaunchConfig *config) {
  struct sim_function *function;
  CUresult result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_size == NULL || config == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ret_size = function->settings->nonportable_cluster ? 16 : 8; /* programming guide, "Thread Block Clusters" */
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuOccupancyMaxActiveClusters(int *ret_clusters, CUfunction handle, const CUlaunchConfig *config) {
  struct sim_function *function;
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = enter(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (ret_clusters == NULL || config == NULL) return CUDA_ERROR_INVALID_VALUE;
  uint64_t size = 1, threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      size = (uint64_t)config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
             config->attrs[i].value.clusterDim.z;
  if (threads == 0 || threads > SIM_BLOCK_THREADS_MAX || size == 0 || size > 16) return CUDA_ERROR_INVALID_VALUE;
  int blocks = blocks_of_sm(function, (int)threads, config->sharedMemBytes);
  *ret_clusters = blocks * sim_device(context->ordinal)->sm_count / (int)size;
  return CUDA_SUCCESS;
}
