/*
 * device_properties.h - how struct cudaDeviceProp is filled, whose layout every major version of CUDA has its own of: a
 * table of its members and the driver's attributes. Those below are in all versions.
 */
#ifndef SC_CUDART_DEVICE_PROPERTIES_H
#define SC_CUDART_DEVICE_PROPERTIES_H
#include "simcuda/cudart/runtime.h"

struct sc_member {
  size_t offset_bytes;
  size_t size_bytes;
  CUdevice_attribute attribute;
};

#define SC_MEMBER(name, attribute)                                                                                     \
  {offsetof(struct cudaDeviceProp, name), sizeof((struct cudaDeviceProp *)NULL)->name, CU_DEVICE_ATTRIBUTE_##attribute}

/* clang-format off */
#define SC_COMMON_MEMBERS \
  SC_MEMBER(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK), \
  SC_MEMBER(regsPerBlock, MAX_REGISTERS_PER_BLOCK), \
  SC_MEMBER(warpSize, WARP_SIZE), \
  SC_MEMBER(memPitch, MAX_PITCH), \
  SC_MEMBER(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK), \
  SC_MEMBER(maxThreadsDim[0], MAX_BLOCK_DIM_X), \
  SC_MEMBER(maxThreadsDim[1], MAX_BLOCK_DIM_Y), \
  SC_MEMBER(maxThreadsDim[2], MAX_BLOCK_DIM_Z), \
  SC_MEMBER(maxGridSize[0], MAX_GRID_DIM_X), \
  SC_MEMBER(maxGridSize[1], MAX_GRID_DIM_Y), \
  SC_MEMBER(maxGridSize[2], MAX_GRID_DIM_Z), \
  SC_MEMBER(totalConstMem, TOTAL_CONSTANT_MEMORY), \
  SC_MEMBER(major, COMPUTE_CAPABILITY_MAJOR), \
  SC_MEMBER(minor, COMPUTE_CAPABILITY_MINOR), \
  SC_MEMBER(textureAlignment, TEXTURE_ALIGNMENT), \
  SC_MEMBER(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT), \
  SC_MEMBER(multiProcessorCount, MULTIPROCESSOR_COUNT), \
  SC_MEMBER(integrated, INTEGRATED), \
  SC_MEMBER(canMapHostMemory, CAN_MAP_HOST_MEMORY), \
  SC_MEMBER(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH), \
  SC_MEMBER(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH), \
  SC_MEMBER(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH), \
  SC_MEMBER(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT), \
  SC_MEMBER(maxTexture2DMipmap[0], MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH), \
  SC_MEMBER(maxTexture2DMipmap[1], MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT), \
  SC_MEMBER(maxTexture2DLinear[0], MAXIMUM_TEXTURE2D_LINEAR_WIDTH), \
  SC_MEMBER(maxTexture2DLinear[1], MAXIMUM_TEXTURE2D_LINEAR_HEIGHT), \
  SC_MEMBER(maxTexture2DLinear[2], MAXIMUM_TEXTURE2D_LINEAR_PITCH), \
  SC_MEMBER(maxTexture2DGather[0], MAXIMUM_TEXTURE2D_GATHER_WIDTH), \
  SC_MEMBER(maxTexture2DGather[1], MAXIMUM_TEXTURE2D_GATHER_HEIGHT), \
  SC_MEMBER(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH), \
  SC_MEMBER(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT), \
  SC_MEMBER(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH), \
  SC_MEMBER(maxTexture3DAlt[0], MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE), \
  SC_MEMBER(maxTexture3DAlt[1], MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE), \
  SC_MEMBER(maxTexture3DAlt[2], MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE), \
  SC_MEMBER(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH), \
  SC_MEMBER(maxTexture1DLayered[0], MAXIMUM_TEXTURE1D_LAYERED_WIDTH), \
  SC_MEMBER(maxTexture1DLayered[1], MAXIMUM_TEXTURE1D_LAYERED_LAYERS), \
  SC_MEMBER(maxTexture2DLayered[0], MAXIMUM_TEXTURE2D_LAYERED_WIDTH), \
  SC_MEMBER(maxTexture2DLayered[1], MAXIMUM_TEXTURE2D_LAYERED_HEIGHT), \
  SC_MEMBER(maxTexture2DLayered[2], MAXIMUM_TEXTURE2D_LAYERED_LAYERS), \
  SC_MEMBER(maxTextureCubemapLayered[0], MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH), \
  SC_MEMBER(maxTextureCubemapLayered[1], MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS), \
  SC_MEMBER(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH), \
  SC_MEMBER(maxSurface2D[0], MAXIMUM_SURFACE2D_WIDTH), \
  SC_MEMBER(maxSurface2D[1], MAXIMUM_SURFACE2D_HEIGHT), \
  SC_MEMBER(maxSurface3D[0], MAXIMUM_SURFACE3D_WIDTH), \
  SC_MEMBER(maxSurface3D[1], MAXIMUM_SURFACE3D_HEIGHT), \
  SC_MEMBER(maxSurface3D[2], MAXIMUM_SURFACE3D_DEPTH), \
  SC_MEMBER(maxSurface1DLayered[0], MAXIMUM_SURFACE1D_LAYERED_WIDTH), \
  SC_MEMBER(maxSurface1DLayered[1], MAXIMUM_SURFACE1D_LAYERED_LAYERS), \
  SC_MEMBER(maxSurface2DLayered[0], MAXIMUM_SURFACE2D_LAYERED_WIDTH), \
  SC_MEMBER(maxSurface2DLayered[1], MAXIMUM_SURFACE2D_LAYERED_HEIGHT), \
  SC_MEMBER(maxSurface2DLayered[2], MAXIMUM_SURFACE2D_LAYERED_LAYERS), \
  SC_MEMBER(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH), \
  SC_MEMBER(maxSurfaceCubemapLayered[0], MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH), \
  SC_MEMBER(maxSurfaceCubemapLayered[1], MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS), \
  SC_MEMBER(surfaceAlignment, SURFACE_ALIGNMENT), \
  SC_MEMBER(concurrentKernels, CONCURRENT_KERNELS), \
  SC_MEMBER(ECCEnabled, ECC_ENABLED), \
  SC_MEMBER(pciBusID, PCI_BUS_ID), \
  SC_MEMBER(pciDeviceID, PCI_DEVICE_ID), \
  SC_MEMBER(pciDomainID, PCI_DOMAIN_ID), \
  SC_MEMBER(tccDriver, TCC_DRIVER), \
  SC_MEMBER(asyncEngineCount, ASYNC_ENGINE_COUNT), \
  SC_MEMBER(unifiedAddressing, UNIFIED_ADDRESSING), \
  SC_MEMBER(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH), \
  SC_MEMBER(l2CacheSize, L2_CACHE_SIZE), \
  SC_MEMBER(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE), \
  SC_MEMBER(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR), \
  SC_MEMBER(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED), \
  SC_MEMBER(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED), \
  SC_MEMBER(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED), \
  SC_MEMBER(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), \
  SC_MEMBER(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR), \
  SC_MEMBER(managedMemory, MANAGED_MEMORY), \
  SC_MEMBER(isMultiGpuBoard, MULTI_GPU_BOARD), \
  SC_MEMBER(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID), \
  SC_MEMBER(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED), \
  SC_MEMBER(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS), \
  SC_MEMBER(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS), \
  SC_MEMBER(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED), \
  SC_MEMBER(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), \
  SC_MEMBER(cooperativeLaunch, COOPERATIVE_LAUNCH), \
  SC_MEMBER(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), \
  SC_MEMBER(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES), \
  SC_MEMBER(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST), \
  SC_MEMBER(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR), \
  SC_MEMBER(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE), \
  SC_MEMBER(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK), \
  SC_MEMBER(hostRegisterSupported, HOST_REGISTER_SUPPORTED), \
  SC_MEMBER(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED), \
  SC_MEMBER(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED), \
  SC_MEMBER(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED), \
  SC_MEMBER(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED), \
  SC_MEMBER(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED), \
  SC_MEMBER(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS), \
  SC_MEMBER(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING), \
  SC_MEMBER(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES), \
  SC_MEMBER(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED), \
  SC_MEMBER(ipcEventSupported, IPC_EVENT_SUPPORTED), \
  SC_MEMBER(clusterLaunch, CLUSTER_LAUNCH), \
  SC_MEMBER(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
/* clang-format on */

/* What begins the structure in all versions. */
struct sc_properties_head {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luid_mask;
  size_t memory_bytes;
};

/* Fills a structure of so many bytes. */
cudaError_t sc_read_properties(void *ret_properties, size_t bytes, int device, const struct sc_member *members,
                               size_t count);

#endif
