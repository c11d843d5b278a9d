/*
 * mapped: virtual memory management: granularity, reserve, map, access, the order of release, retained handles.
 */
#include "row.h"

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static CUmemAccessDesc access_all = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static CUmemGenericAllocationHandle handle;
static CUdeviceptr base;

static void begin_mapped(size_t bytes) {
  begin();
  NEED(cuMemAddressReserve(&base, 4 * bytes, 0, 0, 0));
  NEED(cuMemCreate(&handle, bytes, &prop, 0));
}

static void vmm_granularity(void) {
  size_t least = 0, best = 0;
  begin();
  CODE("least", cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CODE("best", cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  fact("least_is", (long long)least);
  fact("best_is_multiple", least > 0 && best % least == 0);
  CODE("uneven", cuMemCreate(&handle, least + 1, &prop, 0));
  CODE("zero", cuMemCreate(&handle, 0, &prop, 0));
}

static void vmm_address_costs_nothing(void) {
  begin();
  size_t before = free_bytes();
  CODE("reserve", cuMemAddressReserve(&base, 2 * total_bytes() / GRANULE * GRANULE, 0, 0, 0));
  taken("after", before);
  CODE("uneven", cuMemAddressReserve(&base, 4097, 0, 0, 0));
  CODE("zero", cuMemAddressReserve(&base, 0, 0, 0, 0));
}

static void vmm_create_charges(void) {
  begin();
  size_t before = free_bytes();
  CODE("create", cuMemCreate(&handle, 3 * GRANULE, &prop, 0));
  taken("created", before);
  CODE("release", cuMemRelease(handle));
  taken("released", before);
  CODE("again", cuMemRelease(handle));
}

static void vmm_over_limit(void) {
  begin();
  size_t before = free_bytes();
  handle = UNTOUCHED;
  CODE("create", cuMemCreate(&handle, (total_bytes() / GRANULE + 1) * GRANULE, &prop, 0));
  fact("untouched", handle == UNTOUCHED);
  taken("after", before);
}

static void vmm_release_order(void) {
  char in[4] = "";
  begin_mapped(2 * GRANULE);
  size_t before = free_bytes();
  CODE("map", cuMemMap(base, 2 * GRANULE, 0, handle, 0));
  CODE("access", cuMemSetAccess(base, 2 * GRANULE, &access_all, 1));
  CODE("release", cuMemRelease(handle));
  taken("released", before);
  CODE("write", cuMemcpyHtoD_v2(base, "abc", 4));
  CODE("read", cuMemcpyDtoH_v2(in, base, 4));
  fact("same", strcmp(in, "abc") == 0);
  CODE("free_while_mapped", cuMemAddressFree(base, 8 * GRANULE));
  CODE("unmap", cuMemUnmap(base, 2 * GRANULE));
  taken("unmapped", before);
  CODE("address_free", cuMemAddressFree(base, 8 * GRANULE));
}

static void vmm_unmapped_first(void) {
  begin_mapped(GRANULE);
  size_t before = free_bytes();
  NEED(cuMemMap(base, GRANULE, 0, handle, 0));
  CODE("unmap", cuMemUnmap(base, GRANULE));
  taken("unmapped", before);
  CODE("release", cuMemRelease(handle));
  taken("released", before);
}

static void vmm_retained(void) {
  CUmemGenericAllocationHandle again = 0;
  begin_mapped(GRANULE);
  size_t before = free_bytes();
  NEED(cuMemMap(base, GRANULE, 0, handle, 0));
  CODE("retain", cuMemRetainAllocationHandle(&again, (void *)base));
  CODE("release", cuMemRelease(handle));
  CODE("unmap", cuMemUnmap(base, GRANULE));
  taken("held", before);
  CODE("map", cuMemMap(base + GRANULE, GRANULE, 0, again, 0));
  CODE("unmap", cuMemUnmap(base + GRANULE, GRANULE));
  CODE("release", cuMemRelease(again));
  taken("released", before);
}

static void vmm_mapped_twice(void) {
  char in[4] = "";
  begin_mapped(GRANULE);
  CODE("map", cuMemMap(base, GRANULE, 0, handle, 0));
  CODE("taken", cuMemMap(base, GRANULE, 0, handle, 0));
  CODE("elsewhere", cuMemMap(base + 2 * GRANULE, GRANULE, 0, handle, 0));
  CODE("access", cuMemSetAccess(base, GRANULE, &access_all, 1));
  CODE("access", cuMemSetAccess(base + 2 * GRANULE, GRANULE, &access_all, 1));
  CODE("write", cuMemcpyHtoD_v2(base, "xyz", 4));
  CODE("wait", cuCtxSynchronize());
  CODE("read", cuMemcpyDtoH_v2(in, base + 2 * GRANULE, 4));
  fact("same", strcmp(in, "xyz") == 0);
}

static void vmm_errors(void) {
  CUmemAllocationProp back = {0};
  begin_mapped(GRANULE);
  CODE("not_mapped", cuMemUnmap(base, GRANULE));
  CODE("access_not_mapped", cuMemSetAccess(base, GRANULE, &access_all, 1));
  CODE("plain_free", cuMemFree_v2(base));
  CODE("too_long", cuMemMap(base, 2 * GRANULE, 0, handle, 0));
  CODE("flags", cuMemMap(base, GRANULE, 0, handle, 1));
  CODE("properties", cuMemGetAllocationPropertiesFromHandle(&back, handle));
  fact("same", back.type == prop.type && back.location.type == prop.location.type && back.location.id == 0);
}

static void vmm_alignment(void) {
  begin();
  CODE("four_mib", cuMemAddressReserve(&base, GRANULE, 4 * MIB, 0, 0));
  fact("aligned", base % (4 * MIB) == 0);
  CODE("free", cuMemAddressFree(base, GRANULE));
  CODE("one_gib", cuMemAddressReserve(&base, GRANULE, 1024 * MIB, 0, 0));
  fact("aligned", base % (1024 * MIB) == 0);
  CODE("free", cuMemAddressFree(base, GRANULE));
}

ROWS(ROW(vmm_granularity), ROW(vmm_address_costs_nothing), ROW(vmm_create_charges), ROW(vmm_over_limit),
     ROW(vmm_release_order), ROW(vmm_unmapped_first), ROW(vmm_retained), ROW(vmm_mapped_twice), ROW(vmm_errors),
     ROW(vmm_alignment))
