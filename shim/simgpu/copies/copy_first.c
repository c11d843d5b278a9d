/*
 * copy_first.c - the first interface of copies and fills, of 32-bit addresses (memory/alloc_first.c): what the second
 * one does with the same arguments. Called by programs.
 */
#include "simgpu/process/process.h"

/* SECOND(name, parameters, arguments) */

#define SECOND(name, parameters, arguments)                                                                            \
  SIM_PUBLIC CUresult name parameters {                                                                                \
    return name##_v2 arguments;                                                                                        \
  }

SECOND(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned bytes), (to, from, bytes))
SECOND(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned bytes, CUstream s), (to, from, bytes, s))
SECOND(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned bytes), (to, from, bytes))
SECOND(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned bytes, CUstream s), (to, from, bytes, s))
SECOND(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes), (to, from, bytes))
SECOND(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream s), (to, from, bytes, s))
SECOND(cuMemcpyDtoA, (CUarray to, unsigned at, CUdeviceptr_v1 from, unsigned bytes), (to, at, from, bytes))
SECOND(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned at, unsigned bytes), (to, from, at, bytes))
SECOND(cuMemcpyHtoA, (CUarray to, unsigned at, const void *from, unsigned bytes), (to, at, from, bytes))
SECOND(cuMemcpyHtoAAsync, (CUarray to, unsigned at, const void *from, unsigned bytes, CUstream s),
       (to, at, from, bytes, s))
SECOND(cuMemcpyAtoH, (void *to, CUarray from, unsigned at, unsigned bytes), (to, from, at, bytes))
SECOND(cuMemcpyAtoHAsync, (void *to, CUarray from, unsigned at, unsigned bytes, CUstream s), (to, from, at, bytes, s))
SECOND(cuMemcpyAtoA, (CUarray to, unsigned at, CUarray from, unsigned from_at, unsigned bytes),
       (to, at, from, from_at, bytes))
SECOND(cuMemsetD8, (CUdeviceptr_v1 to, unsigned char value, unsigned count), (to, value, count))
SECOND(cuMemsetD16, (CUdeviceptr_v1 to, unsigned short value, unsigned count), (to, value, count))
SECOND(cuMemsetD32, (CUdeviceptr_v1 to, unsigned value, unsigned count), (to, value, count))
SECOND(cuMemsetD2D8, (CUdeviceptr_v1 to, unsigned pitch, unsigned char value, unsigned w, unsigned h),
       (to, pitch, value, w, h))
SECOND(cuMemsetD2D16, (CUdeviceptr_v1 to, unsigned pitch, unsigned short value, unsigned w, unsigned h),
       (to, pitch, value, w, h))
SECOND(cuMemsetD2D32, (CUdeviceptr_v1 to, unsigned pitch, unsigned value, unsigned w, unsigned h),
       (to, pitch, value, w, h))

/* Both ends of a copy with a shape have the same fields. */
#define END(c, end)                                                                                                    \
  .end##XInBytes = (c)->end##XInBytes, .end##Y = (c)->end##Y, .end##MemoryType = (c)->end##MemoryType,                 \
  .end##Host = (c)->end##Host, .end##Device = (c)->end##Device, .end##Array = (c)->end##Array,                         \
  .end##Pitch = (c)->end##Pitch
#define SOLID_END(c, end) END(c, end), .end##Z = (c)->end##Z, .end##LOD = (c)->end##LOD, .end##Height = (c)->end##Height

#define FLAT(name, parameters, ...)                                                                                    \
  SIM_PUBLIC CUresult name parameters {                                                                                \
    CUDA_MEMCPY2D wide = {0};                                                                                          \
    if (copy)                                                                                                          \
      wide =                                                                                                           \
          (CUDA_MEMCPY2D){END(copy, src), END(copy, dst), .WidthInBytes = copy->WidthInBytes, .Height = copy->Height}; \
    return name##_v2(copy ? &wide : NULL __VA_OPT__(, ) __VA_ARGS__);                                                  \
  }
FLAT(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy))
FLAT(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy))
FLAT(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), stream)

#define SOLID(name, parameters, ...)                                                                                   \
  SIM_PUBLIC CUresult name parameters {                                                                                \
    CUDA_MEMCPY3D wide = {0};                                                                                          \
    if (copy)                                                                                                          \
      wide = (CUDA_MEMCPY3D){SOLID_END(copy, src), SOLID_END(copy, dst), .WidthInBytes = copy->WidthInBytes,           \
                             .Height = copy->Height, .Depth = copy->Depth};                                            \
    return name##_v2(copy ? &wide : NULL __VA_OPT__(, ) __VA_ARGS__);                                                  \
  }
SOLID(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy))
SOLID(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), stream)
