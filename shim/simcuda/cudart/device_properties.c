/* device_properties.c - cudaGetDeviceProperties: one structure of what the driver answers attribute by attribute. */
#include "simcuda/cudart/device_prop.h"
#include "simcuda/cudart/runtime.h"
#include <string.h>

struct member {
  size_t offset_bytes;
  size_t size_bytes;
  CUdevice_attribute attribute;
};

#define MEMBER(name, attribute)                                                                                        \
  {offsetof(struct cudaDeviceProp, name), sizeof((struct cudaDeviceProp *)NULL)->name, CU_DEVICE_ATTRIBUTE_##attribute}

static const struct member members[] = {
    MEMBER(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    MEMBER(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    MEMBER(warpSize, WARP_SIZE),
    MEMBER(memPitch, MAX_PITCH),
    MEMBER(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    MEMBER(maxThreadsDim[0], MAX_BLOCK_DIM_X),
    MEMBER(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
    MEMBER(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
    MEMBER(maxGridSize[0], MAX_GRID_DIM_X),
    MEMBER(maxGridSize[1], MAX_GRID_DIM_Y),
    MEMBER(maxGridSize[2], MAX_GRID_DIM_Z),
    MEMBER(totalConstMem, TOTAL_CONSTANT_MEMORY),
    MEMBER(major, COMPUTE_CAPABILITY_MAJOR),
    MEMBER(minor, COMPUTE_CAPABILITY_MINOR),
    MEMBER(textureAlignment, TEXTURE_ALIGNMENT),
    MEMBER(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
    MEMBER(multiProcessorCount, MULTIPROCESSOR_COUNT),
    MEMBER(integrated, INTEGRATED),
    MEMBER(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    MEMBER(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
    MEMBER(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    MEMBER(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH),
    MEMBER(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT),
    MEMBER(maxTexture2DMipmap[0], MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    MEMBER(maxTexture2DMipmap[1], MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    MEMBER(maxTexture2DLinear[0], MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    MEMBER(maxTexture2DLinear[1], MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    MEMBER(maxTexture2DLinear[2], MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    MEMBER(maxTexture2DGather[0], MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    MEMBER(maxTexture2DGather[1], MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    MEMBER(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH),
    MEMBER(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT),
    MEMBER(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH),
    MEMBER(maxTexture3DAlt[0], MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    MEMBER(maxTexture3DAlt[1], MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    MEMBER(maxTexture3DAlt[2], MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    MEMBER(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH),
    MEMBER(maxTexture1DLayered[0], MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    MEMBER(maxTexture1DLayered[1], MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    MEMBER(maxTexture2DLayered[0], MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    MEMBER(maxTexture2DLayered[1], MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    MEMBER(maxTexture2DLayered[2], MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    MEMBER(maxTextureCubemapLayered[0], MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    MEMBER(maxTextureCubemapLayered[1], MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    MEMBER(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH),
    MEMBER(maxSurface2D[0], MAXIMUM_SURFACE2D_WIDTH),
    MEMBER(maxSurface2D[1], MAXIMUM_SURFACE2D_HEIGHT),
    MEMBER(maxSurface3D[0], MAXIMUM_SURFACE3D_WIDTH),
    MEMBER(maxSurface3D[1], MAXIMUM_SURFACE3D_HEIGHT),
    MEMBER(maxSurface3D[2], MAXIMUM_SURFACE3D_DEPTH),
    MEMBER(maxSurface1DLayered[0], MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    MEMBER(maxSurface1DLayered[1], MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    MEMBER(maxSurface2DLayered[0], MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    MEMBER(maxSurface2DLayered[1], MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    MEMBER(maxSurface2DLayered[2], MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    MEMBER(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH),
    MEMBER(maxSurfaceCubemapLayered[0], MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    MEMBER(maxSurfaceCubemapLayered[1], MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    MEMBER(surfaceAlignment, SURFACE_ALIGNMENT),
    MEMBER(concurrentKernels, CONCURRENT_KERNELS),
    MEMBER(ECCEnabled, ECC_ENABLED),
    MEMBER(pciBusID, PCI_BUS_ID),
    MEMBER(pciDeviceID, PCI_DEVICE_ID),
    MEMBER(pciDomainID, PCI_DOMAIN_ID),
    MEMBER(tccDriver, TCC_DRIVER),
    MEMBER(asyncEngineCount, ASYNC_ENGINE_COUNT),
    MEMBER(unifiedAddressing, UNIFIED_ADDRESSING),
    MEMBER(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    MEMBER(l2CacheSize, L2_CACHE_SIZE),
    MEMBER(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    MEMBER(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    MEMBER(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    MEMBER(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    MEMBER(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    MEMBER(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    MEMBER(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    MEMBER(managedMemory, MANAGED_MEMORY),
    MEMBER(isMultiGpuBoard, MULTI_GPU_BOARD),
    MEMBER(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    MEMBER(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    MEMBER(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    MEMBER(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    MEMBER(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    MEMBER(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    MEMBER(cooperativeLaunch, COOPERATIVE_LAUNCH),
    MEMBER(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    MEMBER(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    MEMBER(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    MEMBER(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    MEMBER(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
    MEMBER(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
    MEMBER(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    MEMBER(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED),
    MEMBER(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
    MEMBER(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    MEMBER(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    MEMBER(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    MEMBER(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    MEMBER(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
    MEMBER(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    MEMBER(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    MEMBER(ipcEventSupported, IPC_EVENT_SUPPORTED),
    MEMBER(clusterLaunch, CLUSTER_LAUNCH),
    MEMBER(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
    MEMBER(deviceNumaConfig, NUMA_CONFIG),
    MEMBER(deviceNumaId, NUMA_ID),
    MEMBER(mpsEnabled, MPS_ENABLED),
    MEMBER(hostNumaId, HOST_NUMA_ID),
    MEMBER(gpuPciDeviceID, GPU_PCI_DEVICE_ID),
    MEMBER(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID),
    MEMBER(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED),
};

/* An attribute that the driver does not know stays 0. */
static void fill_members(const struct sc_driver *driver, int device, struct cudaDeviceProp *ret_properties) {
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    char *target = (char *)ret_properties + members[i].offset_bytes;
    int value;
    if (driver->cuDeviceGetAttribute(&value, members[i].attribute, device) != CUDA_SUCCESS) continue;
    size_t wide = (size_t)value;
    if (members[i].size_bytes == sizeof wide)
      memcpy(target, &wide, sizeof wide);
    else
      memcpy(target, &value, sizeof value);
  }
}

SC_PUBLIC cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_properties, int device) {
  const struct sc_driver *driver;
  struct cudaDeviceProp properties = {0};
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess && ret_properties == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuDeviceGetName(properties.name, sizeof properties.name, device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDeviceGetUuid_v2(&properties.uuid, device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDeviceTotalMem_v2(&properties.totalGlobalMem, device);
  if (error != cudaSuccess) return sc_end(error);
  fill_members(driver, device, &properties);
  *ret_properties = properties;
  return cudaSuccess;
}
