/*
 * notice.c - messages to a program on stderr, each once: that NVIDIA's runtime does not start on this device, and that
 * its kernels compute nothing. Otherwise it only sees an error without a reason, or results without sense.
 */
#define _GNU_SOURCE
#include "simgpu/process/notice.h"
#include "simgpu/process/process.h"
#include "simgpu/process/started.h"
#include <ctype.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 60

bool sim_has_notified;

/* The file that an address of code belongs to, as the loader knows it. */
static const char *file_of(const void *address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_fname && *info.dli_fname ? info.dli_fname : "this program";
}

/* NVIDIA's runtime asks for the driver's private tables before anything else, and starts on no driver without them.
 * Either a file has it inside, or its shared library was found before vgpud's (shim/simcuda/cudart/). */
SIM_PUBLIC CUresult cuGetExportTable(const void **ret_table, const CUuuid *id) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  (void)ret_table;
  (void)id;
  if (atomic_flag_test_and_set(&told)) return CUDA_ERROR_NOT_SUPPORTED;
  const char *file = file_of(sim_caller);
  if (strstr(file, "libcudart.so"))
    fprintf(stderr,
            "vgpu: SIMULATED device: %s is NVIDIA's CUDA runtime, which starts on NVIDIA's driver alone, so it finds no"
            " device: start the program by `vgpu run` or `vgpu sim run` and leave its LD_PRELOAD as it is, so that"
            " vgpud's own runtime comes first (docs/pytorch.md has the versions)\n",
            file);
  else
    fprintf(stderr,
            "vgpu: SIMULATED device: %s has NVIDIA's CUDA runtime inside (nvcc links it so by default, CuPy too), which"
            " starts on NVIDIA's driver alone, so it finds no device: build it with `nvcc -cudart shared`, or use"
            " PyTorch, the driver API or a real GPU (docs/pytorch.md)\n",
            file);
  return CUDA_ERROR_NOT_SUPPORTED;
}

void sim_notify_of_kernel(const char *name) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&told)) return;
  __atomic_store_n(&sim_has_notified, true, __ATOMIC_RELAXED);
  char shown[NAME_MAX_BYTES + 1];
  size_t bytes = 0;
  for (; name[bytes] && bytes < NAME_MAX_BYTES; bytes++)
    shown[bytes] = isprint((unsigned char)name[bytes]) ? name[bytes] : '?';
  shown[bytes] = 0;
  fprintf(stderr,
          "vgpu: SIMULATED device: kernel %s takes time and computes nothing, as all but a few do: results are not"
          " real\n",
          shown);
}

void sim_notify_of_zeros_only(void) {
  __atomic_store_n(&sim_has_notified, true, __ATOMIC_RELAXED);
}

void sim_notify_of_zeros(void) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&told)) fputs("vgpu: SIMULATED: kernels compute nothing; results are zeros\n", stderr);
}
