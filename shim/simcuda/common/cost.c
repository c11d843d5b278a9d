/* cost.c - see cost.h. */
#include "simcuda/common/cost.h"
#include "simcuda/common/driver.h"
#include <pthread.h>

#define KERNEL_NS 2000.0 /* [assumed] what the shortest kernels take */
#define LENGTH_MAX_NS 1e12
#define DEVICES_MAX 64

struct device {
  const struct sc_device_model *model;
  int sm_count;
};

static struct device devices[DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct device read_device(const struct sc_driver *driver, CUdevice ordinal) {
  struct device found = {0};
  char name[256] = "";
  if (driver->cuDeviceGetName(name, sizeof name, ordinal) != CUDA_SUCCESS) name[0] = 0;
  found.model = sc_find_device_model(name);
  if (driver->cuDeviceGetAttribute(&found.sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal) != CUDA_SUCCESS)
    found.sm_count = 0;
  return found;
}

static struct device find_current_device(void) {
  const struct sc_driver *driver = sc_driver();
  struct device found = {.model = sc_find_device_model(NULL)};
  CUdevice ordinal;
  if (driver == NULL || driver->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) return found;
  if (ordinal < 0 || ordinal >= DEVICES_MAX) return found;
  pthread_mutex_lock(&lock);
  if (devices[ordinal].model == NULL) devices[ordinal] = read_device(driver, ordinal);
  found = devices[ordinal];
  pthread_mutex_unlock(&lock);
  return found;
}

uint64_t sc_estimate_on_ns(const struct sc_device_model *model, int sm_count, const struct sc_cost *cost) {
  double work_ns = sc_find_work_ns(model, sm_count, cost->flops, cost->math, cost->bytes);
  return (uint64_t)(KERNEL_NS + (work_ns < LENGTH_MAX_NS ? work_ns : LENGTH_MAX_NS));
}

uint64_t sc_estimate_ns(const struct sc_cost *cost) {
  struct device device = find_current_device();
  return sc_estimate_on_ns(device.model, device.sm_count, cost);
}

/* As a number that products cannot overflow. */
static double count(int64_t size) {
  return size > 0 ? (double)size : 0;
}

struct sc_cost sc_cost_gemm(int64_t m, int64_t n, int64_t k, int64_t batch, double element_bytes, double output_bytes,
                            bool has_input, enum sc_math math) {
  double rows = count(m), columns = count(n), depth = count(k);
  double operands = (rows + columns) * depth * element_bytes;
  double output = rows * columns * output_bytes * (has_input ? 2 : 1);
  return (struct sc_cost){
      .flops = 2 * rows * columns * depth * count(batch), .bytes = (operands + output) * count(batch), .math = math};
}

struct sc_cost sc_cost_convolution(const struct sc_convolution *shape, double element_bytes, enum sc_math math) {
  double groups = shape->groups > 1 ? (double)shape->groups : 1, images = count(shape->batch);
  double input = images * count(shape->input_channels) * count(shape->input_pixels);
  double output = images * count(shape->output_channels) * count(shape->output_pixels);
  double depth = count(shape->input_channels) / groups * count(shape->filter_pixels);
  double filters = count(shape->output_channels) * depth;
  return (struct sc_cost){
      .flops = 2 * output * depth, .bytes = (input + output + filters) * element_bytes, .math = math};
}

struct sc_cost sc_cost_attention(const struct sc_attention *shape, double element_bytes, enum sc_math math) {
  double heads = count(shape->batch) * count(shape->heads), key_heads = count(shape->batch) * count(shape->key_heads);
  double queries = count(shape->queries), keys = count(shape->keys);
  double sizes = count(shape->head_size) + count(shape->value_size);
  struct sc_cost cost = {.math = math};
  cost.flops = 2 * heads * queries * keys * sizes * (shape->is_causal ? 0.5 : 1);
  cost.bytes = (heads * queries + key_heads * keys) * sizes * element_bytes; /* queries and result; keys and values */
  if (shape->is_backward) {
    cost.flops *= 2.5;
    cost.bytes *= 2; /* all of the forward pass, and the gradient of each */
  }
  return cost;
}

struct sc_cost sc_cost_bytes(double bytes) {
  return (struct sc_cost){.flops = 0, .bytes = bytes, .math = SC_MATH_FP32};
}
