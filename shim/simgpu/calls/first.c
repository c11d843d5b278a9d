/*
 * first.c - the first interface of memory, of 32-bit addresses. Its allocations lie below 4 GiB, where nothing else is
 * put, so that it is whole for a program that uses nothing newer; an address that does not fit is not reported. All
 * else is what the second interface does with the same arguments.
 */
#include "simgpu/alloc/alloc.h"
#include "simgpu/calls/calls.h"
#include "simgpu/contexts/context.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"

static CUresult narrow(CUresult result, const CUdeviceptr *address, CUdeviceptr_v1 *ret_address) {
  if (result != CUDA_SUCCESS) return result;
  if (*address > UINT32_MAX) return CUDA_ERROR_NOT_SUPPORTED;
  if (ret_address) *ret_address = (CUdeviceptr_v1)*address;
  return CUDA_SUCCESS;
}

static unsigned clamped(size_t bytes) {
  return bytes < UINT32_MAX ? (unsigned)bytes : UINT32_MAX;
}

/* ---- memory ---- */

static CUresult low(bool valid, size_t bytes, CUdeviceptr_v1 *ret_pointer) {
  struct sim_context *context;
  CUdeviceptr pointer = 0;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  if (!valid || !ret_pointer) return CUDA_ERROR_INVALID_VALUE;
  return narrow(sim_memory_alloc_low(context, bytes, &pointer), &pointer, ret_pointer);
}

SIM_PUBLIC CUresult cuMemAlloc(CUdeviceptr_v1 *ret_pointer, unsigned bytes) {
  return low(true, bytes, ret_pointer);
}

SIM_PUBLIC CUresult cuMemAllocPitch(CUdeviceptr_v1 *ret_pointer, unsigned *ret_pitch, unsigned width_bytes,
                                    unsigned height, unsigned element_bytes) {
  size_t pitch = sim_pitch(width_bytes, height, element_bytes);
  CUresult result = low(ret_pitch && pitch, pitch * height, ret_pointer);
  if (result == CUDA_SUCCESS) *ret_pitch = (unsigned)pitch;
  return result;
}

SIM_PUBLIC CUresult cuMemFree(CUdeviceptr_v1 pointer) {
  return cuMemFree_v2(pointer);
}

SIM_PUBLIC CUresult cuMemGetInfo(unsigned *ret_free, unsigned *ret_total) {
  size_t available, total;
  CUresult result = cuMemGetInfo_v2(&available, &total);
  if (result != CUDA_SUCCESS) return result;
  if (ret_free) *ret_free = clamped(available);
  if (ret_total) *ret_total = clamped(total);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMemGetAddressRange(CUdeviceptr_v1 *ret_base, unsigned *ret_bytes, CUdeviceptr_v1 address) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUresult result = narrow(cuMemGetAddressRange_v2(&base, &bytes, address), &base, ret_base);
  if (result == CUDA_SUCCESS && ret_bytes) *ret_bytes = clamped(bytes);
  return result;
}

SIM_PUBLIC CUresult cuMemAllocHost(void **ret_pointer, unsigned bytes) {
  return cuMemAllocHost_v2(ret_pointer, bytes);
}

SIM_PUBLIC CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(pointer, bytes, flags);
}

SIM_PUBLIC CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *ret_pointer, void *pointer, unsigned flags) {
  CUdeviceptr found = 0;
  return narrow(cuMemHostGetDevicePointer_v2(&found, pointer, flags), &found, ret_pointer);
}

SIM_PUBLIC CUresult cuModuleGetGlobal(CUdeviceptr_v1 *ret_pointer, unsigned *ret_bytes, CUmodule module,
                                      const char *name) {
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  CUresult result = narrow(cuModuleGetGlobal_v2(&pointer, &bytes, module, name), &pointer, ret_pointer);
  if (result == CUDA_SUCCESS && ret_bytes) *ret_bytes = clamped(bytes);
  return result;
}

SIM_PUBLIC CUresult cuTexRefGetAddress(CUdeviceptr_v1 *ret_address, CUtexref reference) {
  CUdeviceptr address = 0;
  return narrow(cuTexRefGetAddress_v2(&address, reference), &address, ret_address);
}

SIM_PUBLIC CUresult cuTexRefSetAddress(unsigned *ret_offset, CUtexref reference, CUdeviceptr_v1 address,
                                       unsigned bytes) {
  size_t offset = 0;
  CUresult result = cuTexRefSetAddress_v2(ret_offset ? &offset : NULL, reference, address, bytes);
  if (result == CUDA_SUCCESS && ret_offset) *ret_offset = (unsigned)offset;
  return result;
}

SIM_PUBLIC CUresult cuTexRefSetAddress2D(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v1 *first,
                                         CUdeviceptr_v1 address, unsigned pitch) {
  CUDA_ARRAY_DESCRIPTOR descriptor = {0};
  if (first) descriptor = (CUDA_ARRAY_DESCRIPTOR){first->Width, first->Height, first->Format, first->NumChannels};
  return cuTexRefSetAddress2D_v3(reference, first ? &descriptor : NULL, address, pitch);
}

/* ---- copies and fills: SECOND(name, parameters, arguments) ---- */

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
