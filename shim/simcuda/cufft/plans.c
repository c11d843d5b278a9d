/*
 * plans.c - the simulated cuFFT: plans of transforms, their work areas and execution. A handle is a number, as in the
 * public header: an index into a table of this process.
 *
 * Work areas: cuFFT's guide says that a plan takes at least one and at most eight times the complex numbers of its
 * data. Here it is once where all sizes are products of 2, 3, 5 and 7, which the guide calls the fastest, and four
 * times elsewhere: Bluestein's algorithm works on a power of two that is at least twice as long, in two buffers.
 */
#include "simcuda/common/cost.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/numbers.h"
#include "simcuda/common/public.h"
#include "simcuda/common/work.h"
#include <math.h>
#include <pthread.h>
#include <stddef.h>

#define VERSION 12500 /* of the header that programs were made with */
#define PLANS_MAX 4096
#define RANK_MAX 3
#define BLUESTEIN_FACTOR 4

/* cufftResult of the public header. */
enum status {
  SUCCESS = 0,
  INVALID_PLAN = 1,
  ALLOC_FAILED = 2,
  INVALID_TYPE = 3,
  INVALID_VALUE = 4,
  EXEC_FAILED = 6,
  INVALID_SIZE = 8,
  NO_WORKSPACE = 13
};

struct plan {
  bool is_used, is_made, has_own_area; /* has_own_area: it allocates its work area itself */
  CUstream stream;
  CUdeviceptr area, own_area;
  size_t area_bytes;
  struct sc_cost cost; /* of one execution */
};

static struct plan plans[PLANS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: no such plan. Under the lock. */
static struct plan *find_plan(int handle) {
  return handle >= 0 && handle < PLANS_MAX && plans[handle].is_used ? &plans[handle] : NULL;
}

SC_PUBLIC enum status cufftCreate(int *ret_handle) {
  if (ret_handle == NULL) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  int index = 0;
  while (index < PLANS_MAX && plans[index].is_used) index++;
  if (index < PLANS_MAX) plans[index] = (struct plan){.is_used = true, .has_own_area = true};
  pthread_mutex_unlock(&lock);
  if (index == PLANS_MAX) return ALLOC_FAILED;
  *ret_handle = index;
  return SUCCESS;
}

SC_PUBLIC enum status cufftDestroy(int handle) {
  pthread_mutex_lock(&lock);
  struct plan *plan = find_plan(handle);
  CUdeviceptr area = plan != NULL ? plan->own_area : 0;
  if (plan != NULL) plan->is_used = false;
  pthread_mutex_unlock(&lock);
  if (area != 0) sc_driver()->cuMemFree_v2(area);
  return plan != NULL ? SUCCESS : INVALID_PLAN;
}

SC_PUBLIC enum status cufftGetVersion(int *ret_version) {
  if (ret_version == NULL) return INVALID_VALUE;
  *ret_version = VERSION;
  return SUCCESS;
}

/* A setting of a plan. */
#define SC_DEFINE_SETTER(name, type, field)                                                                            \
  SC_PUBLIC enum status name(int handle, type value) {                                                                 \
    pthread_mutex_lock(&lock);                                                                                         \
    struct plan *plan = find_plan(handle);                                                                             \
    if (plan != NULL) plan->field = value;                                                                             \
    pthread_mutex_unlock(&lock);                                                                                       \
    return plan != NULL ? SUCCESS : INVALID_PLAN;                                                                      \
  }
SC_DEFINE_SETTER(cufftSetStream, CUstream, stream)
SC_DEFINE_SETTER(cufftSetAutoAllocation, int, has_own_area)
SC_DEFINE_SETTER(cufftSetWorkArea, CUdeviceptr, area)

static bool is_smooth(long long size) {
  for (int prime = 2; prime <= 7; prime++)
    while (size % prime == 0) size /= prime;
  return size == 1;
}

/* Near enough for an estimate, and no reason to ask for libm, which small images do not have. */
static double estimate_log2(double value) {
  int exponent;
  double fraction = frexp(value, &exponent); /* in [.5, 1); of the C library */
  return exponent - 1 + (2 * fraction - 1);
}

/* A pass over the data for each dimension; 5 N log2 N operations, half of them where one side is real. */
static enum status measure(struct plan *plan, int rank, const long long *sizes, long long batch, int input_type,
                           int output_type) {
  const struct sc_number *input = sc_find_number(input_type), *output = sc_find_number(output_type);
  if (input == NULL || output == NULL || (input->flops == 1 && output->flops == 1)) return INVALID_TYPE;
  double elements = (double)batch, factor = 1;
  for (int i = 0; i < rank; i++) {
    if (sizes[i] < 1) return INVALID_SIZE;
    elements *= (double)sizes[i];
    if (!is_smooth(sizes[i])) factor = BLUESTEIN_FACTOR;
  }
  bool is_real = input->flops == 1 || output->flops == 1;
  double complex_bytes = input->flops > 1 ? input->bytes : output->bytes;
  double area_bytes = elements * (is_real ? 0.5 : 1) * complex_bytes * factor;
  if (area_bytes > 1e15) return INVALID_SIZE;
  plan->area_bytes = (size_t)area_bytes;
  plan->cost.math = complex_bytes == 16 ? SC_MATH_FP64 : SC_MATH_FP32;
  plan->cost.flops = 5 * elements * estimate_log2(elements / (double)batch + 1) * (is_real ? 0.5 : 1) * factor;
  plan->cost.bytes = elements * (is_real ? 0.5 : 1) * complex_bytes * 2 * rank * factor;
  return SUCCESS;
}

/* Its own work area, where it has one. Without the lock: it asks the driver. */
static enum status allocate(const struct plan *plan, CUdeviceptr *ret_area) {
  *ret_area = 0;
  if (!plan->has_own_area || plan->area_bytes == 0) return SUCCESS;
  if (sc_driver() == NULL || sc_driver()->cuMemAlloc_v2(ret_area, plan->area_bytes) != CUDA_SUCCESS)
    return ALLOC_FAILED;
  return SUCCESS;
}

/* Gives a handle the plan that was made for it; false where the handle has one by now, or is gone. */
static bool keep(int handle, const struct plan *made, CUdeviceptr own_area) {
  pthread_mutex_lock(&lock);
  struct plan *plan = find_plan(handle);
  bool is_new = plan != NULL && !plan->is_made;
  if (is_new) {
    plan->is_made = true;
    plan->area_bytes = made->area_bytes;
    plan->cost = made->cost;
    plan->own_area = own_area;
    if (own_area != 0) plan->area = own_area;
  }
  pthread_mutex_unlock(&lock);
  return is_new;
}

static struct plan copy_plan(int handle) {
  struct plan copy = {.is_used = false};
  pthread_mutex_lock(&lock);
  const struct plan *plan = find_plan(handle);
  if (plan != NULL) copy = *plan;
  pthread_mutex_unlock(&lock);
  return copy;
}

SC_PUBLIC enum status cufftXtMakePlanMany(int handle, int rank, long long *sizes, long long *input_embedding,
                                          long long input_stride, long long input_distance, int input_type,
                                          long long *output_embedding, long long output_stride,
                                          long long output_distance, int output_type, long long batch,
                                          size_t *ret_area_bytes, int execution_type) {
  (void)input_embedding, (void)input_stride, (void)input_distance, (void)output_embedding, (void)output_stride;
  (void)output_distance, (void)execution_type;
  if (sizes == NULL || ret_area_bytes == NULL || rank < 1 || rank > RANK_MAX) return INVALID_VALUE;
  if (batch < 1) return INVALID_SIZE;
  struct plan plan = copy_plan(handle);
  CUdeviceptr own_area = 0;
  if (!plan.is_used || plan.is_made) return INVALID_PLAN;
  enum status status = measure(&plan, rank, sizes, batch, input_type, output_type);
  if (status == SUCCESS) status = allocate(&plan, &own_area);
  if (status != SUCCESS) return status;
  if (!keep(handle, &plan, own_area)) {
    if (own_area != 0) sc_driver()->cuMemFree_v2(own_area);
    return INVALID_PLAN;
  }
  *ret_area_bytes = plan.area_bytes;
  return SUCCESS;
}

/* The older forms: the types of both sides are one code; in the second one the sizes have 32 bits. */
SC_PUBLIC enum status cufftMakePlanMany64(int handle, int rank, long long *sizes, long long *input_embedding,
                                          long long input_stride, long long input_distance, long long *output_embedding,
                                          long long output_stride, long long output_distance, int type, long long batch,
                                          size_t *ret_area_bytes) {
  static const struct {
    int code, input, output;
  } types[] = {
      {0x29, SC_C_32F, SC_C_32F}, {0x2a, SC_R_32F, SC_C_32F}, {0x2c, SC_C_32F, SC_R_32F},
      {0x69, SC_C_64F, SC_C_64F}, {0x6a, SC_R_64F, SC_C_64F}, {0x6c, SC_C_64F, SC_R_64F},
  };
  for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].code == type)
      return cufftXtMakePlanMany(handle, rank, sizes, input_embedding, input_stride, input_distance, types[i].input,
                                 output_embedding, output_stride, output_distance, types[i].output, batch,
                                 ret_area_bytes, types[i].output);
  return INVALID_TYPE;
}

SC_PUBLIC enum status cufftMakePlanMany(int handle, int rank, int *sizes, int *input_embedding, int input_stride,
                                        int input_distance, int *output_embedding, int output_stride,
                                        int output_distance, int type, int batch, size_t *ret_area_bytes) {
  (void)input_embedding, (void)output_embedding;
  long long wide[RANK_MAX];
  if (sizes == NULL || rank < 1 || rank > RANK_MAX) return INVALID_VALUE;
  for (int i = 0; i < rank; i++) wide[i] = sizes[i];
  return cufftMakePlanMany64(handle, rank, wide, NULL, input_stride, input_distance, NULL, output_stride,
                             output_distance, type, batch, ret_area_bytes);
}

SC_PUBLIC enum status cufftXtExec(int handle, void *input, void *output, int direction) {
  (void)direction;
  if (input == NULL || output == NULL) return INVALID_VALUE;
  struct plan plan = copy_plan(handle);
  if (!plan.is_made) return INVALID_PLAN;
  if (plan.area == 0 && plan.area_bytes != 0) return NO_WORKSPACE;
  CUresult result = sc_launch_work(SC_WORK_FFT, plan.stream, sc_estimate_ns(&plan.cost), plan.cost.flops);
  return result == CUDA_SUCCESS ? SUCCESS : EXEC_FAILED;
}

#define SC_DEFINE_EXEC(name)                                                                                           \
  SC_PUBLIC enum status name(int handle, void *input, void *output) {                                                  \
    return cufftXtExec(handle, input, output, 0);                                                                      \
  }
#define SC_DEFINE_EXEC_COMPLEX(name)                                                                                   \
  SC_PUBLIC enum status name(int handle, void *input, void *output, int direction) {                                   \
    return cufftXtExec(handle, input, output, direction);                                                              \
  }
SC_DEFINE_EXEC(cufftExecR2C)
SC_DEFINE_EXEC(cufftExecC2R)
SC_DEFINE_EXEC(cufftExecD2Z)
SC_DEFINE_EXEC(cufftExecZ2D)
SC_DEFINE_EXEC_COMPLEX(cufftExecC2C)
SC_DEFINE_EXEC_COMPLEX(cufftExecZ2Z)
