/*
 * array.h - how much device memory an array takes (array_size.c), for array.c.
 */
#ifndef VG_HOOK_MEMORY_ARRAY_H
#define VG_HOOK_MEMORY_ARRAY_H
#include "gen/abi/cuda_abi.h"

#include <stdint.h>

#define VG_ARRAY_PAGE_BYTES (64ull << 10) /* what sizes are rounded to, and small arrays are packed in steps of */

/* In whole pages; 0: it takes nothing, or the driver will refuse it; UINT64_MAX: more than can be said. levels 0: an
 * array that is not mipmapped. Asks the driver, with the thread's context. */
uint64_t vg_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
/* There is no room for it: OUT_OF_MEMORY, or what the driver says of a descriptor that it would not take at all. */
CUresult vg_array_refusal(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

#endif
