/*
 * work.c - see work.h. The kernels are one library of the driver, written as PTX, loaded once a process; a CUkernel
 * belongs to no context, so every device of the process takes them.
 */
#define _GNU_SOURCE
#include "simcuda/common/work.h"
#include "simcuda/common/driver.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FLOPS_MAX 0x1p63
#define ENTRY(name) ".visible .entry " name "(.param .u64 ns, .param .u64 flops) { ret; }\n"

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

/* `vgpu predict run` asks which types of work there were: an empty file for each, in a folder of its own. */
static void report_kind(enum sc_work kind) {
  static atomic_bool is_reported[SC_WORK_KINDS];
  if (atomic_load_explicit(&is_reported[kind], memory_order_relaxed) || atomic_exchange(&is_reported[kind], true))
    return;
  const char *folder = secure_getenv("VGPU_PREDICT_DIR");
  char path[PATH_MAX];
  if (folder == NULL || *folder == 0 || snprintf(path, sizeof path, "%s/%s", folder, names[kind]) >= (int)sizeof path)
    return;
  int error = errno;
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) close(file);
  errno = error;
}

CUresult sc_launch_work(enum sc_work kind, CUstream stream, uint64_t duration_ns, double flops) {
  uint64_t flop_count = flops > 0 && flops < FLOPS_MAX ? (uint64_t)flops : 0; /* neither negative nor no number */
  void *params[] = {&duration_ns, &flop_count};
  pthread_once(&once, load);
  if (load_result != CUDA_SUCCESS) return load_result;
  report_kind(kind);
  return sc_driver()->cuLaunchKernel((CUfunction)kernels[kind], 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}
