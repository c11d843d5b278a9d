/*
 * lazy_x86_64.S - the entries of libvgpu-ml.so that have no hook: shim/lazy_x86_64.S with the names of NVML.
 */
#define VG_LAZY_COUNTS "gen/ml_counts.h"
#define VG_LAZY_SPARES "gen/ml_entries.inc"
#include "../lazy_x86_64.S"
