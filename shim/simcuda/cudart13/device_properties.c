/* device_properties.c - cudaGetDeviceProperties of CUDA 13. */
#include "simcuda/cudart/device_properties.h"
#include "simcuda/cudart13/device_prop.h"

_Static_assert(offsetof(struct cudaDeviceProp, sharedMemPerBlock) == sizeof(struct sc_properties_head), "as it begins");

static const struct sc_member members[] = {
    SC_COMMON_MEMBERS SC_MEMBER(deviceNumaConfig, NUMA_CONFIG),
    SC_MEMBER(deviceNumaId, NUMA_ID),
    SC_MEMBER(mpsEnabled, MPS_ENABLED),
    SC_MEMBER(hostNumaId, HOST_NUMA_ID),
    SC_MEMBER(gpuPciDeviceID, GPU_PCI_DEVICE_ID),
    SC_MEMBER(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID),
    SC_MEMBER(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED),
};

SC_PUBLIC cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_properties, int device) {
  return sc_read_properties(ret_properties, sizeof *ret_properties, device, members, sizeof members / sizeof *members);
}
