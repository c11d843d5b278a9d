/*
 * lazy_aarch64.S - the entries of libvgpu-ml.so that have no hook: shim/driver/lazy_aarch64.S with the names of NVML.
 */
#define VG_LAZY_COUNTS "gen/nvml/ml_counts.h"
#define VG_LAZY_SPARES "gen/nvml/ml_entries.inc"
#include "driver/lazy_aarch64.S"
