/*
 * memory: what cuMemGetInfo says and what can be allocated, on a device of its own with 1 GiB and 64 MiB per context.
 */
#include "program.h"

#define MIB (1ull << 20)
#define GRANULE (2 * MIB)
#define TOTAL (1024 * MIB)
#define CONTEXT (64 * MIB)

static size_t free_bytes(void) {
  size_t free_now, total;
  CHECK(cuMemGetInfo_v2(&free_now, &total));
  TRUE(total == TOTAL);
  return free_now;
}

static void granules(void) {
  CUdeviceptr first, second, third;
  size_t before = free_bytes();
  TRUE(before == TOTAL - CONTEXT);
  CHECK(cuMemAlloc_v2(&first, 1000));
  TRUE(free_bytes() == before - GRANULE);
  CHECK(cuMemAlloc_v2(&second, 1000)); /* packed into the same granule, 512-byte steps */
  TRUE(second == first + 1024 && free_bytes() == before - GRANULE);
  CHECK(cuMemAlloc_v2(&third, GRANULE + 1));
  TRUE(free_bytes() == before - 3 * GRANULE);
  CHECK(cuMemFree_v2(first));
  TRUE(free_bytes() == before - 3 * GRANULE);
  CHECK(cuMemAlloc_v2(&first, 512)); /* first fit: the hole */
  TRUE(first < second);
  CHECK(cuMemFree_v2(first));
  CHECK(cuMemFree_v2(second)); /* the last one of the granule */
  TRUE(free_bytes() == before - 2 * GRANULE);
  CHECK(cuMemFree_v2(third));
  TRUE(free_bytes() == before);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(third));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&third, 0));
}

static void exactly_all(void) {
  CUdeviceptr all, more = 77;
  size_t before = free_bytes();
  CHECK(cuMemAlloc_v2(&all, before));
  TRUE(free_bytes() == 0);
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, 1));
  TRUE(more == 77); /* untouched */
  CHECK(cuMemFree_v2(all));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, before + 1));
  CHECK(cuMemAlloc_v2(&all, before - GRANULE));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, GRANULE + 1));
  CHECK(cuMemAlloc_v2(&more, GRANULE));
  CHECK(cuMemFree_v2(more));
  CHECK(cuMemFree_v2(all));
  TRUE(free_bytes() == before);
}

static void zeroed_and_lazy(void) {
  CUdeviceptr block;
  unsigned char last = 1;
  CHECK(cuMemAlloc_v2(&block, 512 * MIB));
  CHECK(cuMemcpyDtoH_v2(&last, block + 512 * MIB - 1, 1));
  TRUE(last == 0);
  CHECK(cuMemFree_v2(block));
}

static void contexts(CUcontext first) {
  CUcontext second;
  CUdeviceptr block;
  size_t before = free_bytes();
  CHECK(cuCtxCreate_v2(&second, 0, 0));
  TRUE(free_bytes() == before - CONTEXT);
  CHECK(cuMemAlloc_v2(&block, 10 * MIB));
  CHECK(cuMemAlloc_v2(&block, 10));
  CHECK(cuCtxDestroy_v2(second)); /* frees what it held, without a cuMemFree */
  CUcontext now;
  CHECK(cuCtxGetCurrent(&now));
  TRUE(now == first && free_bytes() == before);
  CHECK(cuMemAlloc_v2(&block, before - GRANULE));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&second, 0, 0));
  CHECK(cuMemFree_v2(block));
}

static cuuint64_t pool_says(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value;
  CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

static void pools(void) {
  CUmemoryPool pool;
  CUdeviceptr large, small, plain;
  size_t before = free_bytes();
  CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cuMemAllocAsync(&large, 5 * MIB, NULL));
  CHECK(cuMemAllocAsync(&small, 1000, NULL));
  TRUE(pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5 * MIB + 1024);
  TRUE(pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 4 * GRANULE);
  TRUE(free_bytes() == before - 4 * GRANULE);
  CHECK(cuMemFreeAsync(large, NULL));
  TRUE(free_bytes() == before - 4 * GRANULE); /* kept until a synchronisation */
  CHECK(cuStreamSynchronize(NULL));
  TRUE(free_bytes() == before - GRANULE && pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == GRANULE);
  cuuint64_t threshold = 1ull << 40;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CHECK(cuMemAllocAsync(&large, 5 * MIB, NULL));
  CHECK(cuMemFree_v2(large)); /* legal for pool memory */
  CHECK(cuCtxSynchronize());
  TRUE(free_bytes() == before - 4 * GRANULE);
  CHECK(cuMemPoolTrimTo(pool, 0));
  TRUE(free_bytes() == before - GRANULE);
  CHECK(cuMemFreeAsync(small, NULL));
  CHECK(cuMemPoolTrimTo(pool, 0));
  CHECK(cuMemAlloc_v2(&plain, GRANULE));
  CHECK(cuMemFreeAsync(plain, NULL)); /* and the other way round */
  TRUE(free_bytes() == before && pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  TRUE(pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 4 * GRANULE);
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&large, TOTAL, NULL));
}

static void pointers(void) {
  CUdeviceptr device, same;
  void *host;
  unsigned type = 0, managed = 7;
  CUcontext context, current;
  size_t bytes, before = free_bytes();
  CHECK(cuMemAlloc_v2(&device, 5000));
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 4999));
  TRUE(type == CU_MEMORYTYPE_DEVICE);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 5000));
  CHECK(cuMemGetAddressRange_v2(&same, &bytes, device + 17));
  TRUE(same == device && bytes == 5000);
  CHECK(cuCtxGetCurrent(&current));
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void *answers[] = {&context, &managed};
  CHECK(cuPointerGetAttributes(2, wanted, answers, device));
  TRUE(context == current && managed == 0);
  CHECK(cuPointerGetAttributes(2, wanted, answers, (CUdeviceptr)&type));
  TRUE(context == NULL);
  CHECK(cuMemFree_v2(device));
  CHECK(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer_v2(&device, host, 0));
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  TRUE(type == CU_MEMORYTYPE_HOST && free_bytes() == before);
  CHECK(cuMemFreeHost(host));
  static char own[8192];
  CHECK(cuMemHostRegister_v2(own, sizeof own, 0));
  EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(own, sizeof own, 0));
  CHECK(cuMemHostUnregister(own));
  EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own));
  CHECK(cuMemAllocManaged(&device, GRANULE, CU_MEM_ATTACH_GLOBAL));
  *(int *)device = 4711; /* the host's own */
  CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device));
  TRUE(managed == 1);
  CHECK(cuMemFree_v2(device));
}

/* Physical memory is charged when it is made, and free when it is released and mapped nowhere. */
static void virtual_memory(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle first, second, same;
  CUdeviceptr base;
  size_t granule, before = free_bytes();
  char text[8] = "";
  CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  TRUE(granule == GRANULE);
  CHECK(cuMemAddressReserve(&base, 8 * granule, 0, 0, 0));
  TRUE(free_bytes() == before);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&first, granule + 1, &prop, 0));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&first, 2 * TOTAL, &prop, 0));
  CHECK(cuMemCreate(&first, 2 * granule, &prop, 0));
  CHECK(cuMemCreate(&second, granule, &prop, 0));
  TRUE(free_bytes() == before - 3 * granule);
  CHECK(cuMemMap(base, 2 * granule, 0, first, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + granule, granule, 0, second, 0)); /* taken */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(base, "text", 5));                /* no access yet */
  CHECK(cuMemMap(base + 2 * granule, granule, 0, second, 0));
  CHECK(cuMemSetAccess(base, 3 * granule, &access, 1));
  CHECK(cuMemcpyHtoD_v2(base + 2 * granule - 2, "text", 5));  /* over the border of two maps */
  CHECK(cuMemMap(base + 4 * granule, granule, 0, second, 0)); /* the same memory at another address */
  CHECK(cuMemSetAccess(base + 4 * granule, granule, &access, 1));
  CHECK(cuMemcpyDtoH_v2(text, base + 4 * granule, 3));
  TRUE(strcmp(text, "xt") == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(base));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ; /* of the second map */
  CHECK(cuMemSetAccess(base + 2 * granule, granule, &access, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(base + 2 * granule, "t", 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(base + 2 * granule - 2, "text", 5));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy(base + 2 * granule, base, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(base + 2 * granule, base, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(base + 2 * granule, 1, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(base, granule, 1, 1, 3));
  CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = "rows",
                        .srcPitch = 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = base,
                        .dstPitch = granule,
                        .WidthInBytes = 1,
                        .Height = 3};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&rows));
  CHECK(cuMemcpyDtoH_v2(text, base + 2 * granule - 2, 5)); /* it may be read */
  TRUE(strcmp(text, "text") == 0);
  CHECK(cuMemcpyDtoD_v2(base, base + 2 * granule, 1));
  CHECK(cuMemRetainAllocationHandle(&same, (void *)base));
  TRUE(same == first);
  CHECK(cuMemRelease(same));
  CHECK(cuMemRelease(first));
  CHECK(cuMemRelease(second));
  TRUE(free_bytes() == before - 3 * granule); /* still mapped */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 8 * granule));
  CHECK(cuMemUnmap(base, 3 * granule));
  TRUE(free_bytes() == before - granule);
  CHECK(cuMemUnmap(base + 4 * granule, granule));
  TRUE(free_bytes() == before);
  CHECK(cuMemAddressFree(base, 8 * granule));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(first));
}

int main(void) {
  CUcontext context = begin();
  granules();
  exactly_all();
  zeroed_and_lazy();
  contexts(context);
  pools();
  pointers();
  virtual_memory();
  CHECK(cuCtxDestroy_v2(context));
  puts("ok");
  return 0;
}
