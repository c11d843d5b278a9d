/* device_properties.c - cudaGetDeviceProperties of CUDA 12, whose programs call it by its second name. */
#include "simcuda/cudart/device_properties.h"
#include "simcuda/cudart12/device_prop.h"

_Static_assert(offsetof(struct cudaDeviceProp, sharedMemPerBlock) == sizeof(struct sc_properties_head), "as it begins");

static const struct sc_member members[] = {
    SC_COMMON_MEMBERS SC_MEMBER(clockRate, CLOCK_RATE),
    SC_MEMBER(deviceOverlap, GPU_OVERLAP),
    SC_MEMBER(kernelExecTimeoutEnabled, KERNEL_EXEC_TIMEOUT),
    SC_MEMBER(computeMode, COMPUTE_MODE),
    SC_MEMBER(maxTexture1DLinear, MAXIMUM_TEXTURE1D_LINEAR_WIDTH),
    SC_MEMBER(memoryClockRate, MEMORY_CLOCK_RATE),
    SC_MEMBER(singleToDoublePrecisionPerfRatio, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO),
    SC_MEMBER(cooperativeMultiDeviceLaunch, COOPERATIVE_MULTI_DEVICE_LAUNCH),
};

SC_PUBLIC cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *ret_properties, int device) {
  return sc_read_properties(ret_properties, sizeof *ret_properties, device, members, sizeof members / sizeof *members);
}
