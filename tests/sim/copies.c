/*
 * copies: bytes arrive where they should, by every way of copying and setting, and nothing beside them changes.
 */
#include "program.h"
#include <stdint.h>

#define WIDTH 37
#define HEIGHT 11
#define DEPTH 3

static void fill(unsigned char *bytes, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)((i * 131 + seed) >> 2);
}

static void linear(void) {
  enum { COUNT = 100003 };
  static unsigned char out[COUNT], back[COUNT];
  CUdeviceptr first, second;
  CUstream stream;
  fill(out, COUNT, 1);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc_v2(&first, COUNT));
  CHECK(cuMemAlloc_v2(&second, COUNT));
  CHECK(cuMemcpyHtoD_v2(first, out, COUNT));
  CHECK(cuMemcpyDtoD_v2(second, first, COUNT));
  CHECK(cuMemcpyDtoH_v2(back, second, COUNT));
  TRUE(memcmp(out, back, COUNT) == 0);
  fill(out, COUNT, 77);
  CHECK(cuMemcpyHtoDAsync_v2(first, out, COUNT, stream));
  CHECK(cuMemcpyDtoDAsync_v2(second, first, COUNT, stream));
  CHECK(cuMemcpyDtoHAsync_v2(back, second, COUNT, stream));
  CHECK(cuStreamSynchronize(stream));
  TRUE(memcmp(out, back, COUNT) == 0);
  fill(out, COUNT, 99);
  CHECK(cuMemcpy(second + 5, (CUdeviceptr)out, COUNT - 5)); /* memory types found by address */
  CHECK(cuMemcpyAsync((CUdeviceptr)back, second + 5, COUNT - 5, stream));
  CHECK(cuStreamSynchronize(stream));
  TRUE(memcmp(out, back, COUNT - 5) == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(first, out, COUNT + 1));     /* past its end */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2((CUdeviceptr)back, out, 1)); /* no device memory */
  CHECK(cuMemFree_v2(first));
  CHECK(cuMemFree_v2(second));
}

static void shaped(void) {
  static unsigned char out[DEPTH][HEIGHT + 1][WIDTH + 3], back[DEPTH][HEIGHT][WIDTH];
  CUdeviceptr device;
  size_t pitch;
  fill(&out[0][0][0], sizeof out, 5);
  CHECK(cuMemAllocPitch_v2(&device, &pitch, WIDTH, HEIGHT * DEPTH, 4));
  TRUE(pitch % 512 == 0);
  CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = out,
                        .srcPitch = WIDTH + 3,
                        .srcXInBytes = 2,
                        .srcY = 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = device,
                        .dstPitch = pitch,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT};
  CHECK(cuMemcpy2D_v2(&flat));
  CUDA_MEMCPY3D cube = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = out,
                        .srcPitch = WIDTH + 3,
                        .srcHeight = HEIGHT + 1,
                        .srcXInBytes = 2,
                        .srcY = 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = device,
                        .dstPitch = pitch,
                        .dstHeight = HEIGHT,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT,
                        .Depth = DEPTH};
  CHECK(cuMemcpy3DAsync_v2(&cube, NULL));
  CUDA_MEMCPY3D home = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .srcDevice = device,
                        .srcPitch = pitch,
                        .srcHeight = HEIGHT,
                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                        .dstHost = back,
                        .dstPitch = WIDTH,
                        .dstHeight = HEIGHT,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT,
                        .Depth = DEPTH};
  CHECK(cuMemcpy3D_v2(&home));
  for (int z = 0; z < DEPTH; z++)
    for (int y = 0; y < HEIGHT; y++) TRUE(memcmp(back[z][y], &out[z][y + 1][2], WIDTH) == 0);
  CHECK(cuMemFree_v2(device));
}

static void sets(void) {
  uint32_t back[64];
  CUdeviceptr device;
  CHECK(cuMemAlloc_v2(&device, sizeof back));
  CHECK(cuMemsetD32_v2(device, 0xdeadbeef, 64));
  CHECK(cuMemsetD8_v2(device + 4, 0x11, 4));
  CHECK(cuMemsetD16Async(device + 8, 0x2233, 2, NULL));
  CHECK(cuMemsetD2D8_v2(device + 64, 16, 0x77, 3, 4));
  CHECK(cuMemcpyDtoH_v2(back, device, sizeof back));
  TRUE(back[0] == 0xdeadbeef && back[1] == 0x11111111 && back[2] == 0x22332233 && back[3] == 0xdeadbeef);
  for (int row = 0; row < 4; row++) TRUE(back[16 + row * 4] == 0xde777777 && back[17 + row * 4] == 0xdeadbeef);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device, 0, 65));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device + 1, 0, 1));
  CHECK(cuMemFree_v2(device));
}

int main(void) {
  begin();
  linear();
  shaped();
  sets();
  puts("ok");
  return 0;
}
