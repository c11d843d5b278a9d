/* batches: of copies, plain and with a shape, of prefetches and discards; and what managed memory remembers. */
#include "program.h"

#define KIB 1024ull
#define HERE(type_, id_) ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_##type_, .id = id_})

static CUstream stream;

static void copies(void) {
  char out[3][8] = {"one", "two", "three"}, in[3][8] = {{0}};
  CUdeviceptr block, there[3], here[3], back[3];
  size_t bytes[3] = {8, 8, 8}, runs[2] = {0, 2}, failed = 9;
  CUmemcpyAttributes attributes[2] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
                                      {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY}};
  CHECK(cuMemAlloc_v2(&block, 4096));
  for (int i = 0; i < 3; i++) {
    there[i] = block + 100u * (unsigned)i;
    here[i] = (CUdeviceptr)out[i];
    back[i] = (CUdeviceptr)in[2 - i];
  }
  CHECK(cuMemcpyBatchAsync_v2(there, here, bytes, 3, attributes, runs, 2, stream));
  CHECK(cuMemcpyBatchAsync_v2_ptsz(back, there, bytes, 3, attributes, runs, 2, CU_STREAM_PER_THREAD));
  CHECK(cuCtxSynchronize());
  TRUE(strcmp(in[0], "three") == 0 && strcmp(in[2], "one") == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync_v2(there, here, bytes, 3, attributes, runs, 2, NULL));
  runs[1] = 3;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync_v2(there, here, bytes, 3, attributes, runs, 2, stream));
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync_v2(there, here, bytes, 3, attributes, runs, 1, stream));
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  here[1] = 0;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(there, here, bytes, 3, attributes, runs, 1, &failed, stream));
  TRUE(failed == 1);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
         cuMemcpyBatchAsync_v2(there, here, bytes, 1, attributes, runs, 1, stream)); /* no node could do it */
  CUgraph graph;
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuMemFree_v2(block));
}

static CUmemcpy3DOperand pointer(void *to, size_t row) {
  return (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                             .op.ptr = {.ptr = (CUdeviceptr)to, .rowLength = row}};
}

/* Out of the middle of a picture, through an array, and back into a tight one. */
static void shaped(void) {
  float picture[4][8], middle[2][3] = {{0}};
  CUarray array;
  size_t failed = 9;
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 8, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUmemcpy3DOperand inside = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY};
  for (int i = 0; i < 32; i++) picture[i / 8][i % 8] = (float)i;
  CHECK(cuArray3DCreate_v2(&array, &descriptor));
  inside.op.array.array = array;
  CUDA_MEMCPY3D_BATCH_OP op = {.src = pointer(&picture[1][2], 8),
                               .dst = inside,
                               .extent = {3, 2, 1},
                               .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  op.dst.op.array.offset.x = 5;
  op.dst.op.array.offset.y = 1;
  CUDA_MEMCPY3D_BATCH_OP back = {
      .src = op.dst, .dst = pointer(middle, 0), .extent = op.extent, .srcAccessOrder = op.srcAccessOrder};
  CHECK(cuMemcpy3DBatchAsync_v2(1, &op, 0, stream));
  CHECK(cuMemcpy3DBatchAsync_v2_ptsz(1, &back, 0, stream));
  CHECK(cuStreamSynchronize(stream));
  TRUE(middle[0][0] == 10 && middle[0][2] == 12 && middle[1][0] == 18 && middle[1][2] == 20);
  CUDA_MEMCPY3D_BATCH_OP bad[2] = {op, op};
  bad[1].extent.depth = 0;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(2, bad, &failed, 0, stream));
  TRUE(failed == 1);
  bad[0].src.op.ptr.rowLength = 2;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, bad, &failed, 0, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, &op, 1, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, &op, 0, NULL));
  CHECK(cuArrayDestroy(array));
}

static int asked(CUmem_range_attribute attribute, CUdeviceptr from, size_t bytes) {
  int value;
  CHECK(cuMemRangeGetAttribute(&value, sizeof value, attribute, from, bytes));
  return value;
}

static void managed(void) {
  CUdeviceptr block, plain;
  int devices[3], last;
  size_t sizes[2] = {64 * KIB, 64 * KIB}, runs[2] = {0, 1};
  CHECK(cuMemAllocManaged(&block, 256 * KIB, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuMemAlloc_v2(&plain, 4096));
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, block, 256 * KIB) == CU_DEVICE_INVALID);
  CUdeviceptr ranges[2] = {block, block + 128 * KIB};
  CUmemLocation to[2] = {HERE(DEVICE, 0), HERE(HOST, 0)};
  CHECK(cuMemPrefetchBatchAsync(ranges, sizes, 2, to, runs, 2, 0, stream));
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, block, 64 * KIB) == 0);
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, block, 65 * KIB) == CU_DEVICE_INVALID);
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, block + 128 * KIB, 64 * KIB) == CU_DEVICE_CPU);
  CHECK(cuMemDiscardAndPrefetchBatchAsync_ptsz(ranges, sizes, 2, to, runs, 1, 0, CU_STREAM_PER_THREAD));
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, block + 128 * KIB, KIB) ==
       CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(cuMemDiscardBatchAsync(ranges, sizes, 2, 0, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(ranges, sizes, 2, 0, NULL));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(ranges, sizes, 2, 1, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(&plain, sizes, 1, 0, stream));
  to[0].id = 7;
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchBatchAsync(ranges, sizes, 2, to, runs, 2, 0, stream));

  CHECK(cuMemAdvise_v2(block, 256 * KIB, CU_MEM_ADVISE_SET_READ_MOSTLY, HERE(HOST, 0)));
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, 256 * KIB) == 1);
  CHECK(cuMemAdvise_v2(block + KIB, KIB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, HERE(HOST, 0)));
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, 256 * KIB) == 0);
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block + 2 * KIB, KIB) == 1);
  CHECK(cuMemAdvise(block, 256 * KIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
  CHECK(cuMemAdvise(block, 256 * KIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(block, KIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 9));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(plain, KIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  CUmem_range_attribute both[2] = {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
  void *data[2] = {&last, devices};
  size_t data_sizes[2] = {sizeof last, sizeof devices};
  CHECK(cuMemRangeGetAttributes(data, data_sizes, both, 2, block, 256 * KIB));
  TRUE(last == CU_DEVICE_CPU && devices[0] == 0 && devices[1] == CU_DEVICE_INVALID && devices[2] == CU_DEVICE_INVALID);
  data_sizes[0] = 8;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(data, data_sizes, both, 2, block, 256 * KIB));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuMemRangeGetAttribute(&last, sizeof last, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, KIB));
  CHECK(cuMemFree_v2(block));
  CHECK(cuMemFree_v2(plain));
  CHECK(cuMemAllocManaged(&block, 256 * KIB, CU_MEM_ATTACH_GLOBAL)); /* at the same address, perhaps */
  TRUE(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, KIB) == 0);
}

int main(void) {
  begin();
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  copies();
  shaped();
  managed();
  puts("ok");
  return 0;
}
