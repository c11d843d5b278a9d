/*
 * host_kernels.c - fill, copy, saxpy, reduce and a small GEMM, computed by the host at submission, so that programs can
 * check numbers through the simulated device; and what its own libraries (shim/simcuda/) do in the order of
 * submissions. Called at a launch of a kernel whose rule in kernels.model names one. The order of the arguments is
 * given with each; which kernel parameter holds them is the rule's business.
 */
#include "simgpu/modules/host_kernels.h"
#include "simgpu/arena/backing.h"
#include "simgpu/images/image.h"
#include "simgpu/modules/condition.h"
#include "simgpu/modules/model.h"
#include "simgpu/process/values.h"
#include "simgpu/streams/stream.h"
#include <errno.h>
#include <string.h>

#define SIM_FILL_ANY_BYTES (64u << 10)

struct arguments {
  const struct sim_model_rule *rule;
  const struct sim_image_kernel *kernel;
  const uint8_t *params;
  sim_host_check check;
  bool wrong;             /* a parameter is missing or has no size that fits */
  bool fault;             /* a range is not device memory */
  bool poor;              /* no host memory for a range */
  uint64_t claimed;       /* of host memory for all ranges */
  uint32_t element_bytes; /* of a type that is any: as many as the value has */
};

struct sim_host_kernel {
  const char *name;
  void (*run)(struct arguments *a);
};

static const uint64_t type_bytes[] = {[SIM_HOST_F32] = 4, [SIM_HOST_F64] = 8, [SIM_HOST_I32] = 4, [SIM_HOST_BYTE] = 1};

static uint64_t bytes_of(const struct arguments *a) {
  return a->rule->type == SIM_HOST_ANY ? a->element_bytes : type_bytes[a->rule->type];
}

static const uint8_t *argument(struct arguments *a, int index, uint32_t *ret_bytes) {
  uint32_t param = a->rule->args[index];
  *ret_bytes = 0;
  if (param >= a->kernel->param_count) {
    a->wrong = true;
    return a->params;
  }
  *ret_bytes = a->kernel->params[param].size_bytes;
  return a->params + a->kernel->params[param].offset_bytes;
}

static uint64_t count_of(struct arguments *a, int index) {
  uint32_t bytes;
  const uint8_t *at = argument(a, index, &bytes);
  int32_t narrow = 0;
  int64_t wide = 0;
  if (bytes == 4)
    memcpy(&narrow, at, 4);
  else if (bytes == 8)
    memcpy(&wide, at, 8);
  else
    a->wrong = true;
  int64_t count = bytes == 4 ? narrow : wide;
  return count < 0 || a->wrong ? 0 : (uint64_t)count;
}

/* A number of the rule's type; a wider parameter (a Python float for a float kernel) is taken as what it is. */
static double scalar_of(struct arguments *a, int index) {
  uint32_t bytes;
  const uint8_t *at = argument(a, index, &bytes);
  if (bytes == 8) {
    double d;
    int64_t l;
    memcpy(&d, at, 8);
    memcpy(&l, at, 8);
    return a->rule->type == SIM_HOST_I32 ? (double)l : d;
  }
  float f;
  int32_t i;
  if (bytes != 4) {
    a->wrong = true;
    return 0;
  }
  memcpy(&f, at, 4);
  memcpy(&i, at, 4);
  return a->rule->type == SIM_HOST_I32 ? i : f;
}

static uint64_t word_of(struct arguments *a, int index) {
  uint32_t bytes;
  const uint8_t *at = argument(a, index, &bytes);
  uint64_t word = 0;
  if (bytes == sizeof word)
    memcpy(&word, at, sizeof word);
  else
    a->wrong = true;
  return word;
}

static void *array_of(struct arguments *a, int index, uint64_t count) {
  uint64_t address = word_of(a, index), size_bytes = 0;
  if (a->wrong) return NULL;
  bool on_device = false;
  if (__builtin_mul_overflow(count, bytes_of(a), &size_bytes) ||
      (count != 0 && !a->check(address, size_bytes, &on_device)))
    a->fault = true;
  uint64_t claimed = 0;
  if (on_device && !a->fault) a->poor |= sim_backing_begin(address, size_bytes, &claimed) != CUDA_SUCCESS;
  a->claimed += claimed;
  return (void *)(uintptr_t)address;
}

static bool usable(const struct arguments *a) {
  return !a->wrong && !a->fault && !a->poor;
}

/* One that is written. */
static void *output_of(struct arguments *a, int index, uint64_t count) {
  void *array = array_of(a, index, count);
  if (usable(a)) sim_values_write((uint64_t)(uintptr_t)array, count * bytes_of(a));
  return array;
}

/* One body for the three element types. */
#define FOR_TYPE(a, ...)                                                                                               \
  switch ((a)->rule->type) {                                                                                           \
  case SIM_HOST_F32: {                                                                                                 \
    typedef float element;                                                                                             \
    __VA_ARGS__                                                                                                        \
  } break;                                                                                                             \
  case SIM_HOST_F64: {                                                                                                 \
    typedef double element;                                                                                            \
    __VA_ARGS__                                                                                                        \
  } break;                                                                                                             \
  case SIM_HOST_I32: {                                                                                                 \
    typedef int32_t element;                                                                                           \
    __VA_ARGS__                                                                                                        \
  } break;                                                                                                             \
  case SIM_HOST_BYTE: {                                                                                                \
    typedef uint8_t element;                                                                                           \
    __VA_ARGS__                                                                                                        \
  } break;                                                                                                             \
  case SIM_HOST_ANY: /* of fill alone */                                                                               \
    (a)->wrong = true;                                                                                                 \
  }

/* Of elements that are bytes and no numbers; few ones, since programs fill what they could not use up. */
static void fill_any(struct arguments *a) {
  uint64_t n = count_of(a, 0);
  const uint8_t *value = argument(a, 1, &a->element_bytes);
  if (a->element_bytes == 0 || n > SIM_FILL_ANY_BYTES / a->element_bytes) {
    sim_values_kernel();
    return;
  }
  uint8_t *out = output_of(a, 2, n);
  for (uint64_t i = 0; usable(a) && i < n; i++) memcpy(out + i * a->element_bytes, value, a->element_bytes);
}

static void run_fill(struct arguments *a) { /* n, value, out */
  if (a->rule->type == SIM_HOST_ANY) {
    fill_any(a);
    return;
  }
  uint64_t n = count_of(a, 0);
  double value = scalar_of(a, 1);
  void *out = output_of(a, 2, n);
  if (!usable(a)) return;
  FOR_TYPE(a, element *o = out; for (uint64_t i = 0; i < n; i++) o[i] = (element)value;)
}

static void run_copy(struct arguments *a) { /* n, in, out */
  uint64_t n = count_of(a, 0);
  void *in = array_of(a, 1, n), *out = output_of(a, 2, n);
  if (usable(a)) memmove(out, in, n * bytes_of(a));
}

static void run_saxpy(struct arguments *a) { /* n, a, x, y: y = a * x + y */
  uint64_t n = count_of(a, 0);
  double factor = scalar_of(a, 1);
  void *x = array_of(a, 2, n), *y = output_of(a, 3, n);
  if (!usable(a)) return;
  FOR_TYPE(a, element *px = x; element *py = y; element f = (element)factor;
           for (uint64_t i = 0; i < n; i++) py[i] = f * px[i] + py[i];)
}

static void run_reduce(struct arguments *a) { /* n, in, out: out[0] = sum of in */
  uint64_t n = count_of(a, 0);
  void *in = array_of(a, 1, n), *out = output_of(a, 2, 1);
  if (!usable(a)) return;
  double sum = 0;
  FOR_TYPE(a, element *pi = in; for (uint64_t i = 0; i < n; i++) sum += pi[i]; *(element *)out = (element)sum;)
}

static void run_gemm(struct arguments *a) { /* m, n, k, A[m,k], B[k,n], C[m,n]: C = A B, rows first */
  uint64_t m = count_of(a, 0), n = count_of(a, 1), k = count_of(a, 2);
  if (m > UINT32_MAX || n > UINT32_MAX || k > UINT32_MAX) a->fault = true;
  if (!usable(a)) return;
  void *left = array_of(a, 3, m * k), *right = array_of(a, 4, k * n), *out = output_of(a, 5, m * n);
  if (!usable(a)) return;
  FOR_TYPE(
      a, element *pa = left; element *pb = right; element *pc = out;
      for (uint64_t i = 0; i < m; i++) for (uint64_t j = 0; j < n; j++) {
        double sum = 0;
        for (uint64_t l = 0; l < k; l++) sum += (double)pa[i * k + l] * (double)pb[l * n + j];
        pc[i * n + j] = (element)sum;
      })
}

/* The handle's name is a number: that of cudaGraphConditionalHandle. */
static void run_condition(struct arguments *a) { /* handle, in: the handle's value = in[0] */
  uint64_t handle = word_of(a, 0);
  void *in = array_of(a, 1, 1);
  if (!usable(a)) return;
  FOR_TYPE(a, if (!sim_condition_set(handle, (uint32_t)(int64_t)*(element *)in)) a->wrong = true;)
}

/* A function of the library that launches, which may read `in` and write `out`: it runs when the launch is submitted,
 * in a graph at each launch of the graph, as all bytes here are moved in the order of submissions. Where the host has
 * no memory for the two, its second argument says so and it touches neither. */
static void run_call(struct arguments *a) { /* function, argument, in, bytes of in, out, bytes of out */
  void (*function)(void *, bool) = (void (*)(void *, bool))(uintptr_t)word_of(a, 0);
  void *argument = (void *)(uintptr_t)word_of(a, 1);
  uint64_t in_bytes = word_of(a, 3);
  void *in = array_of(a, 2, in_bytes);
  if (usable(a) && in_bytes != 0) /* others read them, too; before out, which may be the same */
    sim_values_read(in, (uint64_t)(uintptr_t)in, in_bytes);
  output_of(a, 4, word_of(a, 5));
  if (a->wrong || a->fault || !function) return;
  bool is_usable = !a->poor;
  a->poor = false;
  function(argument, is_usable);
}

static void run_disband(struct arguments *a) { /* group: kernels of this process wait for no others in its meetings */
  uint64_t group = word_of(a, 0);
  if (usable(a)) sim_submit_disband(group);
}

static const struct sim_host_kernel kernels[] = {
    {"fill", run_fill}, {"copy", run_copy},           {"saxpy", run_saxpy}, {"reduce", run_reduce},
    {"gemm", run_gemm}, {"condition", run_condition}, {"call", run_call},   {"disband", run_disband},
};

const struct sim_host_kernel *sim_host_find(const char *name) {
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
    if (strcmp(kernels[i].name, name) == 0) return &kernels[i];
  return NULL;
}

int sim_host_run(const struct sim_model_rule *rule, const struct sim_image_kernel *kernel, const uint8_t *params,
                 sim_host_check check) {
  struct arguments a = {.rule = rule, .kernel = kernel, .params = params, .check = check};
  rule->host->run(&a);
  sim_backing_end(a.claimed);
  if (a.wrong) return -EINVAL;
  return a.fault ? -EFAULT : a.poor ? -ENOMEM : 0;
}
