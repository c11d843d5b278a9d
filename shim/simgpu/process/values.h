/*
 * values.h - which bytes of device memory have a meaning on a device whose kernels compute nothing: those that were
 * written since the last kernel that should have computed something, by the host, by a fill, by a copy of such bytes,
 * or by a kernel that does compute. A copy of few other bytes to the host gives zeros, so that losses, flags and counts
 * are zero and not what the memory held before. Copies, memsets and launches call this; it does nothing before
 * sim_values_watch(), which the CUDA runtime of the simulated device asks for (SIM_VALUES_ENTRY of cuGetProcAddress).
 */
#ifndef VG_SIM_VALUES_H
#define VG_SIM_VALUES_H
#include <stdbool.h>
#include <stdint.h>

#define SIM_VALUES_ENTRY "vgpuSimulatedZeroReads"
#define SIM_VALUES_READ_BYTES 4096 /* copies to the host of so many bytes and fewer */

extern bool sim_values_watched;

void sim_values_watch(void);
/* A kernel ran that computes nothing. */
void sim_values_kernel(void);
/* These bytes were written; or, copied from others, they have a meaning if those have one. */
void sim_values_write(uint64_t to, uint64_t bytes);
void sim_values_copy(uint64_t to, uint64_t from, uint64_t bytes);
/* These bytes of the host were just read from the device: few ones without a meaning become zeros. */
void sim_values_read(void *to, uint64_t from, uint64_t bytes);

#endif
