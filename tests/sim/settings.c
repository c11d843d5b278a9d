/* settings: what only the host keeps: the driver's log, settings of crash dumps, tensor maps; and facts of a device. */
#include "program.h"

static int heard; /* changed by a thread of the driver */

static void hear(void *data, CUlogLevel level, char *message, size_t length) {
  TRUE(data == &heard && level == CU_LOG_LEVEL_ERROR && strlen(message) == length && strstr(message, "700"));
  __atomic_fetch_add(&heard, 1, __ATOMIC_SEQ_CST);
}

/* A kernel that writes where no memory is. */
static void fail(void) {
  static const char text[] =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry fill_f32(.param .u32 n, .param .f32 value, .param .u64 out)\n{\nret;\n}\n";
  CUmodule module;
  CUfunction fill;
  unsigned count = 4;
  float value = 1;
  CUdeviceptr nowhere = 4096;
  void *params[] = {&count, &value, &nowhere};
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&fill, module, "fill_f32"));
  CHECK(cuLaunchKernel(fill, 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void logs(void) {
  CUlogIterator before, now;
  CUlogsCallbackHandle handle;
  char text[512], path[] = "/tmp/sim-logs-XXXXXX";
  size_t size = sizeof text;
  CHECK(cuLogsCurrent(&before, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent(&before, 1));
  CHECK(cuLogsDumpToMemory(&before, text, &size, 0));
  TRUE(size == 0 && text[0] == 0);
  CHECK(cuLogsRegisterCallback(hear, &heard, &handle));
  CUcontext context = begin();
  fail();
  for (int i = 0; i < 5000 && __atomic_load_n(&heard, __ATOMIC_SEQ_CST) == 0; i++) usleep(1000);
  TRUE(__atomic_load_n(&heard, __ATOMIC_SEQ_CST) == 1);
  CHECK(cuLogsUnregisterCallback(handle));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback(handle));
  CHECK(cuCtxDestroy_v2(context));
  now = before;
  size = 10;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&now, text, &size, 0));
  TRUE(size == 0 && now == before);
  size = sizeof text;
  CHECK(cuLogsDumpToMemory(&now, text, &size, 0));
  TRUE(size == strlen(text) && text[size - 1] == '\n' && strstr(text, "700"));
  size = sizeof text;
  CHECK(cuLogsDumpToMemory(&now, text, &size, 0));
  TRUE(size == 0);
  int fd = mkstemp(path);
  CHECK(cuLogsDumpToFile(NULL, path, 0));
  TRUE(read(fd, text, sizeof text) > 0 && unlink(path) == 0);
  close(fd);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToFile(NULL, NULL, 0));
}

static void coredumps(void) {
  _Bool on = 1;
  char file[1024], name[64];
  unsigned flags = CU_COREDUMP_SKIP_ABORT;
  size_t size;
  CHECK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, NULL, &size));
  TRUE(size == sizeof file);
  CHECK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, file, &size));
  snprintf(name, sizeof name, ".%d", (int)getpid());
  TRUE(strncmp(file, "core.cuda.", 10) == 0 && strstr(file, name));
  size = sizeof on;
  CHECK(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
  TRUE(!on);
  on = 1;
  CHECK(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
  CHECK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
  TRUE(!on); /* that was the context's */
  CHECK(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
  TRUE(on);
  EXPECT(CUDA_ERROR_NOT_PERMITTED, cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &on, &size));
  CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_USER_TRIGGER, &on, &size));
  CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
  size = sizeof flags;
  CHECK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  TRUE(flags == CU_COREDUMP_LIGHTWEIGHT_FLAGS);
  flags = 1u << 20;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  size = sizeof "dump";
  CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_FILE, "dump", &size));
  size = sizeof file;
  CHECK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, file, &size));
  TRUE(strcmp(file, "dump") == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttribute(CU_COREDUMP_MAX, file, &size));
}

static CUresult tiled(CUtensorMap *map, CUdeviceptr address, cuuint64_t stride, cuuint32_t box,
                      CUtensorMapSwizzle swizzle) {
  cuuint64_t dims[2] = {256, 64};
  cuuint32_t boxes[2] = {box, 8}, ones[2] = {1, 1};
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)address, dims, &stride, boxes, ones,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void tensor_maps(void) {
  CUtensorMap map, other;
  CUdeviceptr block;
  CHECK(cuMemAlloc_v2(&block, 1 << 20));
  CHECK(tiled(&map, block, 512, 64, CU_TENSOR_MAP_SWIZZLE_128B));
  CHECK(tiled(&other, block, 512, 64, CU_TENSOR_MAP_SWIZZLE_128B));
  TRUE(memcmp(&map, &other, sizeof map) == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, tiled(&map, block + 8, 512, 64, CU_TENSOR_MAP_SWIZZLE_128B));
  EXPECT(CUDA_ERROR_INVALID_VALUE, tiled(&map, block, 520, 64, CU_TENSOR_MAP_SWIZZLE_128B));
  EXPECT(CUDA_ERROR_INVALID_VALUE, tiled(&map, block, 512, 63, CU_TENSOR_MAP_SWIZZLE_NONE));
  EXPECT(CUDA_ERROR_INVALID_VALUE, tiled(&map, block, 512, 64, CU_TENSOR_MAP_SWIZZLE_64B)); /* 128 bytes of a row */
  EXPECT(CUDA_ERROR_INVALID_VALUE, tiled(&map, block, 512, 512, CU_TENSOR_MAP_SWIZZLE_NONE));
  CHECK(cuTensorMapReplaceAddress(&map, (void *)(block + 256)));
  TRUE(memcmp(&map, &other, sizeof map) != 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)(block + 4)));
  cuuint64_t dims[4] = {64, 32, 32, 2}, strides[3] = {128, 128 * 32, 128 * 32 * 32};
  cuuint32_t ones[4] = {1, 1, 1, 1};
  int lower[2] = {-1, -1}, upper[2] = {-1, -1};
#define IM2COL(channels)                                                                                               \
  cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)block, dims, strides, lower, upper,        \
                          channels, 64, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,               \
                          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
  CHECK(IM2COL(64));
  EXPECT(CUDA_ERROR_INVALID_VALUE, IM2COL(257));
  lower[0] = -129;
  EXPECT(CUDA_ERROR_INVALID_VALUE, IM2COL(64));
  lower[0] = 31; /* nothing is left between the corners */
  EXPECT(CUDA_ERROR_INVALID_VALUE, IM2COL(64));
  CHECK(cuMemFree_v2(block));
}

static void facts(void) {
  size_t width;
  CUatomicOperation operations[2] = {CU_ATOMIC_OPERATION_CAS, CU_ATOMIC_OPERATION_FLOAT_ADD};
  unsigned found[2];
  CHECK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, 0));
  TRUE(width > 1 << 20);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, 0));
  CHECK(cuDeviceGetHostAtomicCapabilities(found, operations, 2, 0));
  TRUE(found[0] & CU_ATOMIC_CAPABILITY_SCALAR_64 && found[1] == 0);
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetHostAtomicCapabilities(found, operations, 2, 9));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetHostAtomicCapabilities(found, operations, 0, 0));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAtomicCapabilities(found, operations, 2, 0, 0));
}

int main(void) {
  logs();
  begin();
  coredumps();
  tensor_maps();
  facts();
  puts("ok");
  return 0;
}
