/*
 * notice.c - messages to a program on stderr, each once: that CUDA's runtime does not start on this device, and that
 * its kernels compute nothing. Otherwise it only sees an error without a reason, or results without sense.
 */
#include "simgpu/process/notice.h"
#include "simgpu/process/process.h"
#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>

#define NAME_MAX_BYTES 60

bool sim_has_notified;

/* NVIDIA's runtime asks for the driver's private tables before anything else, and starts on no driver without them. */
SIM_PUBLIC CUresult cuGetExportTable(const void **ret_table, const CUuuid *id) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  (void)ret_table;
  (void)id;
  if (!atomic_flag_test_and_set(&told))
    fputs("vgpu: SIMULATED device: NVIDIA's CUDA runtime (libcudart) starts on NVIDIA's driver alone, so this program"
          " finds no device; programs of the driver API run here (`vgpu sim coverage`)\n",
          stderr);
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
  if (!atomic_flag_test_and_set(&told))
    fputs("vgpu: SIMULATED: kernels compute nothing; results are zeros\n", stderr);
}
