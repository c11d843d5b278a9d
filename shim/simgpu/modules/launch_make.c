/*
 * launch_make.c - what a launch is: the function, its shape and a checked copy of its parameters; what it costs, and
 * what it computes. Called by modules/launch.c and by kernel nodes of graphs.
 */
#include "simcuda/common/devices.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/base/strict.h"
#include "simgpu/images/image.h"
#include "simgpu/modules/host_kernels.h"
#include "simgpu/modules/model.h"
#include "simgpu/modules/module.h"
#include "simgpu/process/current.h"
#include "simgpu/process/notice.h"
#include "simgpu/process/process.h"
#include "simgpu/process/values.h"
#include "simgpu/streams/stream.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLOPS_MAX 0x1p63 /* no kernel has as many */

/* Parameters as pointers (params) or as one buffer (extra). NULL result with success: there are none to copy. */
static CUresult copy_params(const struct sim_function *function, void **params, void **extra, uint8_t **ret_params) {
  const struct sim_image_kernel *kernel = &function->kernel;
  const void *buffer = NULL;
  size_t buffer_bytes = 0;
  *ret_params = NULL;
  if (params != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      buffer_bytes = *(size_t *)extra[1];
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (!function->known_params || kernel->param_bytes == 0) return CUDA_SUCCESS;
  if (params == NULL && (buffer == NULL || buffer_bytes < kernel->param_bytes)) return CUDA_ERROR_INVALID_VALUE;
  uint8_t *copy = calloc(1, kernel->param_bytes);
  if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (params == NULL) memcpy(copy, buffer, kernel->param_bytes);
  for (uint32_t i = 0; params != NULL && i < kernel->param_count; i++)
    memcpy(copy + kernel->params[i].offset_bytes, params[i], kernel->params[i].size_bytes);
  *ret_params = copy;
  return CUDA_SUCCESS;
}

static CUresult check_shape(const struct sim_function *function, const unsigned grid[3], const unsigned block[3],
                            unsigned shared_bytes) {
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0) return CUDA_ERROR_INVALID_VALUE;
  if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > SIM_BLOCK_THREADS_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (function->kernel.max_threads != 0 && threads > function->kernel.max_threads) return CUDA_ERROR_INVALID_VALUE;
  if ((int)threads > sim_function_max_threads(function)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (shared_bytes > (unsigned)function->settings->dynamic_shared_bytes) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* The ns= of a kernel whose image does not list its parameters, as in PyTorch's: the rule knows that it has this one.
 */
static uint64_t read_unlisted_ns(const struct sim_function *function, void **params) {
  int index = function->rule->ns_arg;
  uint64_t duration_ns = 0;
  if (index < 0 || function->known_params || params == NULL || params[index] == NULL) return 0;
  memcpy(&duration_ns, params[index], sizeof duration_ns);
  return duration_ns < SIM_NS_ARG_MAX ? duration_ns : SIM_NS_ARG_MAX;
}

CUresult sim_launch_make(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                         void **params, void **extra, struct sim_launch *ret_launch) {
  struct sim_function *function = sim_function_find(handle);
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_shape(function, grid, block, shared_bytes);
  if (result != CUDA_SUCCESS) return result;
  struct sim_launch launch = {.function = function, .shared_bytes = shared_bytes};
  launch.param_bytes = function->kernel.param_bytes;
  memcpy(launch.grid, grid, sizeof launch.grid);
  memcpy(launch.block, block, sizeof launch.block);
  uint32_t param_count = function->known_params ? function->kernel.param_count : 0;
  struct sim_shape shape = {launch.grid, launch.block, params, param_count};
  launch.bytes = sim_amount_of_launch(&function->rule->bytes, function->name_bytes, &shape);
  launch.flops = sim_amount_of_launch(&function->rule->flops, function->name_flops, &shape);
  launch.unlisted_ns = read_unlisted_ns(function, params);
  result = copy_params(function, params, extra, &launch.params);
  if (result == CUDA_SUCCESS) *ret_launch = launch;
  bool computes = function->rule->host != NULL || !sim_model_should_compute(function->rule);
  bool told = __atomic_load_n(&sim_has_notified, __ATOMIC_RELAXED) || computes;
  if (result == CUDA_SUCCESS && !told) sim_notify_of_kernel(function->kernel.name);
  return result;
}

/* What a parameter of 4 or 8 bytes says; 0 where the kernel has none such. */
static uint64_t read_arg(const struct sim_launch *launch, int index) {
  const struct sim_image_kernel *kernel = &launch->function->kernel;
  uint32_t narrow;
  uint64_t wide = 0;
  if (index < 0 || launch->params == NULL || (uint32_t)index >= kernel->param_count) return 0;
  const uint8_t *at = launch->params + kernel->params[index].offset_bytes;
  if (kernel->params[index].size_bytes == sizeof wide) memcpy(&wide, at, sizeof wide);
  if (kernel->params[index].size_bytes != sizeof narrow) return wide;
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

static uint64_t read_ns_arg(const struct sim_launch *launch) {
  uint64_t duration_ns = read_arg(launch, launch->function->rule->ns_arg);
  return duration_ns < SIM_NS_ARG_MAX ? duration_ns : SIM_NS_ARG_MAX;
}

struct sim_meeting sim_launch_meeting(const struct sim_launch *launch) {
  const struct sim_model_rule *rule = launch->function->rule;
  if (rule->meet_arg < 0) return (struct sim_meeting){.devices = rule->meet};
  uint64_t devices = read_arg(launch, rule->meet_arg);
  if (devices < 2 || devices > SIM_MEET_MAX) return (struct sim_meeting){0};
  return (struct sim_meeting){.devices = (uint16_t)devices,
                              .number = (uint32_t)read_arg(launch, rule->meet_arg + 1),
                              .group = read_arg(launch, rule->meet_arg + 2)};
}

/* The time that the device needs for what the launch moves and computes; with ns= what it computes is in that. */
static uint64_t find_work_ns(const struct sim_launch *launch, const struct sim_device *device) {
  const struct sim_model_rule *rule = launch->function->rule;
  double flops = rule->ns_arg < 0 ? launch->flops * rule->product_count : 0;
  if (launch->bytes == 0 && flops == 0) return 0;
  double duration_ns =
      sc_find_work_ns(sc_find_device_model(device->name), device->sm_count, flops, rule->math, launch->bytes);
  return duration_ns < SIM_NS_ARG_MAX ? (uint64_t)duration_ns : SIM_NS_ARG_MAX;
}

struct sim_work sim_launch_work_of(const struct sim_launch *launch, const struct sim_context *context) {
  const struct sim_device *device = sim_device(context->ordinal);
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  uint64_t resident = (uint64_t)device->sm_count * SIM_SM_THREADS;
  uint64_t duration_ns = sim_model_cost_ns(launch->function->rule, blocks, threads, resident);
  duration_ns += launch->unlisted_ns + read_ns_arg(launch) + find_work_ns(launch, device);
  return (struct sim_work){.cost_ns = duration_ns, .flops = launch->flops < FLOPS_MAX ? (uint64_t)launch->flops : 0};
}

/* Which memory a kernel uses is not known: taken to be all of each allocation that a parameter points into. */
void sim_launch_use(const struct sim_launch *launch, struct sim_stream *stream) {
  struct sim_allocation allocation;
  if (launch->params == NULL || VG_LOAD_RELAXED(&sim_link.ring->managed) == 0) return;
  for (uint64_t at = 0; at + sizeof(uint64_t) <= launch->param_bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, launch->params + at, sizeof word);
    if (word && sim_memory_find(word, &allocation) && allocation.is_paged) sim_submit_use(stream, allocation.base);
  }
}

/* Device, managed and registered host memory may be used by a kernel. */
static bool range_usable(uint64_t address, uint64_t bytes, bool *ret_on_device) {
  struct sim_allocation allocation;
  if (SIM_STRICT && !sim_strict_range(address, bytes)) return false;
  if (!sim_memory_covers(address, bytes, &allocation)) return false;
  *ret_on_device = allocation.kind == CU_MEMORYTYPE_DEVICE;
  return true;
}

CUresult sim_launch_compute(const struct sim_launch *launch) {
  const struct sim_function *function = launch->function;
  if (SIM_STRICT && launch->params != NULL) sim_strict_words(launch->params, launch->param_bytes);
  if (function->rule->fault != CUDA_SUCCESS) return function->rule->fault;
  if (function->rule->host == NULL || launch->params == NULL) {
    if (sim_model_should_compute(function->rule)) sim_values_kernel();
    return CUDA_SUCCESS;
  }
  int result = sim_host_run(function->rule, &function->kernel, launch->params, range_usable);
  if (result == -EFAULT) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (result == -ENOMEM) return CUDA_ERROR_OUT_OF_MEMORY;
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
