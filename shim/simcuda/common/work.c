/*
 * work.c - see work.h. The kernels are one library of the driver, written as PTX, loaded once a process; a CUkernel
 * belongs to no context, so every device of the process takes them.
 */
#include "simcuda/common/work.h"
#include "simcuda/common/driver.h"
#include <pthread.h>

#define ENTRY(name) ".visible .entry " name "(.param .u64 ns) { ret; }\n"

static const char image[] = ".version 8.0\n.target sm_50\n.address_size 64\n" /* any architecture */
    ENTRY("simcuda_gemm") ENTRY("simcuda_convolution") ENTRY("simcuda_attention") ENTRY("simcuda_normalization")
        ENTRY("simcuda_elementwise") ENTRY("simcuda_recurrent") ENTRY("simcuda_fft") ENTRY("simcuda_solver")
            ENTRY("simcuda_sparse");

static const char *const names[SC_WORK_KINDS] = {
    [SC_WORK_GEMM] = "simcuda_gemm",
    [SC_WORK_CONVOLUTION] = "simcuda_convolution",
    [SC_WORK_ATTENTION] = "simcuda_attention",
    [SC_WORK_NORMALIZATION] = "simcuda_normalization",
    [SC_WORK_ELEMENTWISE] = "simcuda_elementwise",
    [SC_WORK_RECURRENT] = "simcuda_recurrent",
    [SC_WORK_FFT] = "simcuda_fft",
    [SC_WORK_SOLVER] = "simcuda_solver",
    [SC_WORK_SPARSE] = "simcuda_sparse",
};

static CUkernel kernels[SC_WORK_KINDS];
static CUresult load_result = CUDA_ERROR_NOT_INITIALIZED;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  const struct sc_driver *driver = sc_driver();
  CUlibrary library;
  if (driver == NULL) return;
  load_result = driver->cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
  for (int i = 0; i < SC_WORK_KINDS && load_result == CUDA_SUCCESS; i++)
    load_result = driver->cuLibraryGetKernel(&kernels[i], library, names[i]);
}

CUresult sc_launch_work(enum sc_work kind, CUstream stream, uint64_t duration_ns) {
  void *params[] = {&duration_ns};
  pthread_once(&once, load);
  if (load_result != CUDA_SUCCESS) return load_result;
  return sc_driver()->cuLaunchKernel((CUfunction)kernels[kind], 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}
