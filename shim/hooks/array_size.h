/*
 * array_size.h - how much device memory an array takes.
 */
#ifndef VG_HOOK_ARRAY_SIZE_H
#define VG_HOOK_ARRAY_SIZE_H
#include <stdint.h>

#include "gen/abi/cuda_abi.h"

#define VG_ARRAY_PAGE_BYTES (64ull << 10) /* what sizes are rounded to, and small arrays are packed in steps of */

/* In whole pages; 0: it takes nothing, or the driver will refuse it; UINT64_MAX: more than can be said. levels 0: an
 * array that is not mipmapped. Asks the driver, with the thread's context. */
uint64_t vg_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
/* The answer where free memory is short: OUT_OF_MEMORY, or the driver's error for a descriptor that it would not take
 * at all. */
CUresult vg_array_refusal(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

#endif
