/*
 * pools: stream-ordered memory: what a pool reserves, keeps, trims and lets go, and freeing across families.
 */
#include "row.h"

static CUmemoryPool pool;

static long long of_pool(CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  NEED(cuMemPoolGetAttribute(pool, attribute, &value));
  return (long long)value;
}

static void keep(cuuint64_t bytes) {
  NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static void begin_pool(void) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  begin();
  NEED(cuMemPoolCreate(&pool, &props));
}

static void pool_default(void) {
  CUmemoryPool current, first;
  cuuint64_t threshold = 1;
  begin();
  CODE("default", cuDeviceGetDefaultMemPool(&first, 0));
  CODE("current", cuDeviceGetMemPool(&current, 0));
  fact("same", first == current);
  CODE("threshold", cuMemPoolGetAttribute(first, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  fact("is", (long long)threshold);
  CODE("destroy", cuMemPoolDestroy(first));
}

static void pool_current(void) {
  CUmemoryPool current, first;
  begin_pool();
  CODE("set", cuDeviceSetMemPool(0, pool));
  NEED(cuDeviceGetMemPool(&current, 0));
  fact("is_ours", current == pool);
  CODE("destroy", cuMemPoolDestroy(pool));
  NEED(cuDeviceGetMemPool(&current, 0));
  NEED(cuDeviceGetDefaultMemPool(&first, 0));
  fact("default_again", current == first);
}

static void pool_reserved(void) {
  CUdeviceptr block;
  begin_pool();
  size_t before = free_bytes();
  CODE("alloc", cuMemAllocFromPoolAsync(&block, 5 * MIB, pool, NULL));
  fact("used_at_least", of_pool(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= (long long)(5 * MIB));
  long long reserved = of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  fact("reserved_at_least", reserved >= (long long)(5 * MIB));
  fact("info_says_reserved", (long long)(before - free_bytes()) == reserved);
  CODE("free", cuMemFreeAsync(block, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  fact("used", of_pool(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  fact("reserved", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  taken("after", before);
  fact("high", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == reserved);
}

static void pool_threshold_and_trim(void) {
  CUdeviceptr block;
  begin_pool();
  size_t before = free_bytes();
  keep(1ull << 40);
  NEED(cuMemAllocFromPoolAsync(&block, 8 * MIB, pool, NULL));
  long long reserved = of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  NEED(cuMemFreeAsync(block, NULL));
  NEED(cuStreamSynchronize(NULL));
  fact("kept", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved);
  fact("info_says_kept", (long long)(before - free_bytes()) == reserved);
  CODE("trim", cuMemPoolTrimTo(pool, (size_t)reserved * 2));
  fact("kept", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved);
  CODE("trim", cuMemPoolTrimTo(pool, 0));
  fact("reserved", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  taken("after", before);
}

static void pool_trim_in_use(void) {
  CUdeviceptr used, unused;
  begin_pool();
  keep(1ull << 40);
  NEED(cuMemAllocFromPoolAsync(&used, 40 * MIB, pool, NULL));
  NEED(cuMemAllocFromPoolAsync(&unused, 40 * MIB, pool, NULL));
  NEED(cuMemFreeAsync(unused, NULL));
  NEED(cuStreamSynchronize(NULL));
  size_t before = free_bytes();
  CODE("trim", cuMemPoolTrimTo(pool, 0));
  fact("unused_went", free_bytes() > before);
  fact("used_stays", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= (long long)(40 * MIB));
  CODE("still_there", cuMemsetD8_v2(used, 1, 40 * MIB));
}

/* Freeing alone gives nothing back: a synchronisation lets go of what is above the threshold. */
static void pool_threshold_changed(void) {
  CUdeviceptr block;
  begin_pool();
  size_t before = free_bytes();
  keep(1ull << 40);
  NEED(cuMemAllocFromPoolAsync(&block, 8 * MIB, pool, NULL));
  NEED(cuMemFreeAsync(block, NULL));
  NEED(cuStreamSynchronize(NULL));
  fact("kept", free_bytes() < before);
  keep(0);
  fact("asked", of_pool(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
  NEED(cuMemAllocFromPoolAsync(&block, MIB, pool, NULL));
  NEED(cuMemFreeAsync(block, NULL));
  CODE("wait", cuStreamSynchronize(NULL));
  taken("after", before);
}

static void pool_high_water(void) {
  CUdeviceptr block;
  cuuint64_t zero = 0;
  begin_pool();
  NEED(cuMemAllocFromPoolAsync(&block, 8 * MIB, pool, NULL));
  NEED(cuMemFreeAsync(block, NULL));
  NEED(cuStreamSynchronize(NULL));
  fact("high", of_pool(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= (long long)(8 * MIB));
  CODE("reset", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  fact("high", of_pool(CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

static void pool_max_size(void) {
  CUmemPoolProps props = {
      .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = 32 * MIB};
  CUdeviceptr block = UNTOUCHED;
  begin();
  NEED(cuMemPoolCreate(&pool, &props));
  CODE("over", cuMemAllocFromPoolAsync(&block, 256 * MIB, pool, NULL));
  fact("untouched", block == UNTOUCHED);
  CODE("within", cuMemAllocFromPoolAsync(&block, 8 * MIB, pool, NULL));
}

static void pool_reuse(void) {
  CUdeviceptr first, second;
  begin_pool();
  keep(1ull << 40);
  NEED(cuMemAllocFromPoolAsync(&first, 8 * MIB, pool, NULL));
  NEED(cuMemFreeAsync(first, NULL));
  size_t between = free_bytes();
  NEED(cuMemAllocFromPoolAsync(&second, 8 * MIB, pool, NULL));
  taken("more", between);
}

static void pool_free_across(void) {
  CUdeviceptr block;
  begin();
  size_t before = free_bytes();
  NEED(cuMemAllocAsync(&block, 4 * MIB, NULL));
  CODE("plain_free_of_pool", cuMemFree_v2(block));
  CODE("wait", cuCtxSynchronize());
  NEED(cuDeviceGetDefaultMemPool(&pool, 0));
  NEED(cuMemPoolTrimTo(pool, 0));
  taken("after", before);
  NEED(cuMemAlloc_v2(&block, 4 * MIB));
  CODE("async_free_of_plain", cuMemFreeAsync(block, NULL));
  CODE("wait", cuCtxSynchronize());
  taken("after", before);
}

static void pool_errors(void) {
  CUdeviceptr block = UNTOUCHED;
  begin_pool();
  size_t before = free_bytes();
  CODE("over", cuMemAllocFromPoolAsync(&block, total_bytes() + GRANULE, pool, NULL));
  CODE("over_default", cuMemAllocAsync(&block, total_bytes() + GRANULE, NULL));
  fact("untouched", block == UNTOUCHED);
  fact("reserved", of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  taken("after", before);
  cuuint64_t one = 1;
  CODE("used_high_to_1", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
  CODE("set_reserved", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &one));
}

static void pool_destroyed_while_used(void) {
  CUdeviceptr block;
  char in = 0;
  begin_pool();
  size_t before = free_bytes();
  NEED(cuMemAllocFromPoolAsync(&block, 4 * MIB, pool, NULL));
  CODE("destroy", cuMemPoolDestroy(pool));
  CODE("set", cuMemsetD8_v2(block, 5, 16));
  CODE("read", cuMemcpyDtoH_v2(&in, block, 1));
  fact("value", in);
  CODE("free", cuMemFreeAsync(block, NULL));
  CODE("wait", cuCtxSynchronize());
  taken("after", before);
}

ROWS(ROW(pool_default), ROW(pool_current), ROW(pool_reserved), ROW(pool_threshold_and_trim), ROW(pool_trim_in_use),
     ROW(pool_threshold_changed), ROW(pool_high_water), ROW(pool_max_size), ROW(pool_reuse), ROW(pool_free_across),
     ROW(pool_errors), ROW(pool_destroyed_while_used))
