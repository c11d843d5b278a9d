/*
 * memory: cuMemAlloc and its kin: granules and packing, error codes, pitch, managed, host memory, pointers.
 */
#include "row.h"

static void alloc_granules(void) {
  CUdeviceptr first, second, third;
  begin();
  size_t before = free_bytes();
  CODE("alloc", cuMemAlloc_v2(&first, 1000));
  taken("small", before);
  CODE("alloc", cuMemAlloc_v2(&second, 1000));
  taken("packed", before);
  CODE("alloc", cuMemAlloc_v2(&third, GRANULE + 1));
  taken("large", before);
  CODE("free", cuMemFree_v2(third));
  taken("without_large", before);
  CODE("free", cuMemFree_v2(first));
  CODE("free", cuMemFree_v2(second));
  taken("after", before);
}

static void alloc_alignment(void) {
  CUdeviceptr block[3];
  begin();
  for (int i = 0; i < 3; i++) NEED(cuMemAlloc_v2(&block[i], 100));
  fact("aligned_256", (block[0] | block[1] | block[2]) % 256 == 0);
  fact("apart", block[0] != block[1] && block[1] != block[2] && block[0] != block[2]);
}

static void alloc_zero_bytes(void) {
  CUdeviceptr block = UNTOUCHED;
  begin();
  CODE("alloc", cuMemAlloc_v2(&block, 0));
  fact("untouched", block == UNTOUCHED);
  CODE("null", cuMemAlloc_v2(NULL, 1));
}

static void alloc_over_limit(void) {
  CUdeviceptr block = UNTOUCHED, small;
  begin();
  size_t before = free_bytes();
  CODE("alloc", cuMemAlloc_v2(&block, total_bytes() + GRANULE));
  fact("untouched", block == UNTOUCHED);
  CODE("huge", cuMemAlloc_v2(&block, 1ull << 50));
  fact("untouched", block == UNTOUCHED);
  taken("after", before);
  CODE("still_works", cuMemAlloc_v2(&small, 4096));
}

static void free_twice(void) {
  CUdeviceptr block;
  begin();
  NEED(cuMemAlloc_v2(&block, GRANULE));
  CODE("free", cuMemFree_v2(block));
  CODE("again", cuMemFree_v2(block));
  CODE("never_was", cuMemFree_v2(0x1234));
  CODE("null", cuMemFree_v2(0));
}

static void free_inside(void) {
  CUdeviceptr block;
  begin();
  NEED(cuMemAlloc_v2(&block, 3 * GRANULE));
  CODE("inside", cuMemFree_v2(block + GRANULE));
  CODE("free", cuMemFree_v2(block));
}

static void alloc_before_init(void) {
  CUdeviceptr block = UNTOUCHED;
  size_t one, two;
  CODE("alloc", cuMemAlloc_v2(&block, 1));
  CODE("info", cuMemGetInfo_v2(&one, &two));
  fact("untouched", block == UNTOUCHED);
}

static void alloc_without_context(void) {
  CUdeviceptr block = UNTOUCHED;
  size_t one, two;
  NEED(cuInit(0));
  CODE("alloc", cuMemAlloc_v2(&block, 1));
  CODE("info", cuMemGetInfo_v2(&one, &two));
  fact("untouched", block == UNTOUCHED);
}

static void info_is_consistent(void) {
  size_t free_now, total, device_total;
  begin();
  CODE("info", cuMemGetInfo_v2(&free_now, &total));
  CODE("device", cuDeviceTotalMem_v2(&device_total, 0));
  fact("same_total", total == device_total);
  fact("free_below_total", free_now < total);
}

static void copies_there_and_back(void) {
  unsigned char out[5000], in[5000];
  CUdeviceptr block, other;
  begin();
  for (unsigned i = 0; i < sizeof out; i++) out[i] = (unsigned char)(i * 7);
  NEED(cuMemAlloc_v2(&block, sizeof out));
  NEED(cuMemAlloc_v2(&other, sizeof out));
  CODE("to_device", cuMemcpyHtoD_v2(block, out, sizeof out));
  CODE("across", cuMemcpyDtoD_v2(other, block, sizeof out));
  CODE("to_host", cuMemcpyDtoH_v2(in, other, sizeof in));
  fact("same", memcmp(in, out, sizeof in) == 0);
  CODE("set", cuMemsetD32_v2(other + 400, 0x01020304, 3));
  CODE("to_host", cuMemcpyDtoH_v2(in, other, sizeof in));
  fact("word", in[400] | in[401] << 8 | in[411] << 16);
  fact("around", in[399] == out[399] && in[412] == out[412]);
  CODE("odd_address", cuMemsetD32_v2(other + 1, 0, 1));
  CODE("nothing", cuMemcpyHtoD_v2(block, out, 0));
}

static void pitch(void) {
  CUdeviceptr block = UNTOUCHED;
  size_t pitch_bytes = 0, base_bytes = 0;
  CUdeviceptr base = 0;
  begin();
  CODE("alloc", cuMemAllocPitch_v2(&block, &pitch_bytes, 1000, 16, 4));
  fact("wide_enough", pitch_bytes >= 1000);
  fact("pitch_of_256", pitch_bytes % 256 == 0);
  CODE("range", cuMemGetAddressRange_v2(&base, &base_bytes, block + 3 * pitch_bytes + 5));
  fact("base", base == block);
  fact("rows_fit", base_bytes >= 15 * pitch_bytes + 1000);
  CODE("free", cuMemFree_v2(block));
  CODE("element_3", cuMemAllocPitch_v2(&block, &pitch_bytes, 1000, 16, 3));
  CODE("no_width", cuMemAllocPitch_v2(&block, &pitch_bytes, 0, 16, 4));
  block = UNTOUCHED;
  CODE("over", cuMemAllocPitch_v2(&block, &pitch_bytes, 1 << 20, total_bytes() / (1 << 20) + 2, 4));
  fact("untouched", block == UNTOUCHED);
}

static void pitch_rows(void) {
  CUdeviceptr block;
  size_t pitch_bytes;
  unsigned char in[2] = {0, 0};
  begin();
  NEED(cuMemAllocPitch_v2(&block, &pitch_bytes, 300, 5, 4));
  CODE("clear", cuMemsetD2D8_v2(block, pitch_bytes, 1, 300, 5));
  CODE("third_row", cuMemsetD8_v2(block + 2 * pitch_bytes, 9, 300));
  CODE("read", cuMemcpyDtoH_v2(&in[0], block + 2 * pitch_bytes + 299, 1));
  CODE("read", cuMemcpyDtoH_v2(&in[1], block + 3 * pitch_bytes, 1));
  fact("third", in[0]);
  fact("fourth", in[1]);
}

static void managed(void) {
  CUdeviceptr block = UNTOUCHED;
  unsigned is_managed = 0;
  begin();
  CODE("alloc", cuMemAllocManaged(&block, GRANULE, CU_MEM_ATTACH_GLOBAL));
  ((volatile int *)block)[3] = 4711; /* the host's own */
  CODE("copy", cuMemcpyDtoD_v2(block + 64, block + 12, 4));
  CODE("wait", cuCtxSynchronize());
  fact("value", ((volatile int *)block)[16]);
  CODE("attribute", cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
  fact("managed", is_managed);
  CODE("free", cuMemFree_v2(block));
  block = UNTOUCHED;
  CODE("zero", cuMemAllocManaged(&block, 0, CU_MEM_ATTACH_GLOBAL));
  CODE("flags", cuMemAllocManaged(&block, 1, 0));
  fact("untouched", block == UNTOUCHED);
}

static void host_memory(void) {
  void *host = NULL;
  static char own[8192] __attribute__((aligned(4096)));
  unsigned type = 0;
  CUdeviceptr device;
  begin();
  size_t before = free_bytes();
  CODE("alloc", cuMemHostAlloc(&host, 64 * MIB, CU_MEMHOSTALLOC_DEVICEMAP));
  taken("device", before);
  CODE("pointer", cuMemHostGetDevicePointer_v2(&device, host, 0));
  CODE("attribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  fact("type", type);
  CODE("wrong_free", cuMemFree_v2(device));
  CODE("free", cuMemFreeHost(host));
  CODE("register", cuMemHostRegister_v2(own, sizeof own, 0));
  CODE("again", cuMemHostRegister_v2(own, sizeof own, 0));
  CODE("unregister", cuMemHostUnregister(own));
  CODE("again", cuMemHostUnregister(own));
}

static void pointer_attributes(void) {
  CUdeviceptr block, base = 0;
  unsigned type = 0, is_managed = 7;
  size_t bytes = 0;
  CUcontext context = NULL, current;
  begin();
  NEED(cuMemAlloc_v2(&block, 5000));
  CODE("type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 17));
  fact("is", type);
  CODE("managed", cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
  fact("is", is_managed);
  CODE("range", cuMemGetAddressRange_v2(&base, &bytes, block + 17));
  fact("base", base == block);
  fact("bytes", (long long)bytes);
  NEED(cuCtxGetCurrent(&current));
  CODE("context", cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
  fact("same", context == current);
  NEED(cuMemFree_v2(block));
  CODE("freed", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
}

ROWS(ROW(alloc_granules), ROW(alloc_alignment), ROW(alloc_zero_bytes), ROW(alloc_over_limit), ROW(free_twice),
     ROW(free_inside), ROW(alloc_before_init), ROW(alloc_without_context), ROW(info_is_consistent),
     ROW(copies_there_and_back), ROW(pitch), ROW(pitch_rows), ROW(managed), ROW(host_memory), ROW(pointer_attributes))
