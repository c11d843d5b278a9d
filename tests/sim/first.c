/*
 * first: the first interface: 32-bit addresses, launches whose parameters a function keeps, contexts that several
 * users attach to; and one cooperative launch on two devices.
 */
#include "program.h"

#define MIB (1u << 20)

static const char *const TEXT =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry fill_f32(.param .u32 n, .param .f32 value, .param .u64 out)\n{\nret;\n}\n"
    ".visible .entry spin_1000()\n{\nret;\n}\n.visible .entry spin_100()\n{\nret;\n}\n"
    ".visible .global .align 4 .b8 table[64];\n";

static size_t free_bytes(void) {
  size_t available, total;
  CHECK(cuMemGetInfo_v2(&available, &total));
  return available;
}

static void memory(void) {
  CUdeviceptr_v1 small, large, pitched, base;
  unsigned pitch, bytes, available, total, data[4] = {1, 2, 3, 4}, back[4] = {0};
  size_t first = free_bytes();
  CHECK(cuMemAlloc(&small, 100));
  CHECK(cuMemAlloc(&large, 5 * MIB));
  TRUE(first - free_bytes() == 8 * MIB); /* granules of their own */
  CHECK(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
  TRUE(pitch == 512);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&pitched, &pitch, 100, 10, 3));
  CHECK(cuMemGetAddressRange(&base, &bytes, large + MIB));
  TRUE(base == large && bytes == 5 * MIB);
  CHECK(cuMemGetInfo(&available, &total));
  TRUE(available <= total && total == 1u << 30);
  CHECK(cuMemcpyHtoD(small, data, sizeof data));
  CHECK(cuMemcpyDtoD(large, small, sizeof data));
  CHECK(cuMemsetD32(large + 4, 7, 2));
  CHECK(cuMemcpyDtoH(back, large, sizeof back));
  TRUE(back[0] == 1 && back[1] == 7 && back[2] == 7 && back[3] == 4);
  CUDA_MEMCPY2D_v1 copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = data,
                           .srcPitch = 8,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = pitched,
                           .dstPitch = pitch,
                           .WidthInBytes = 8,
                           .Height = 2};
  CHECK(cuMemcpy2D(&copy));
  CHECK(cuMemcpyDtoH(back, pitched + pitch, 8));
  TRUE(back[0] == 3 && back[1] == 4);
  CUDA_MEMCPY3D_v1 solid = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = pitched,
                            .srcPitch = pitch,
                            .srcHeight = 2,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = back,
                            .dstPitch = 8,
                            .dstHeight = 2,
                            .WidthInBytes = 8,
                            .Height = 2,
                            .Depth = 1};
  CHECK(cuMemcpy3D(&solid));
  TRUE(back[0] == 1 && back[3] == 4);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(NULL));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&base, 2000u * MIB));
  TRUE(base == large);
  CHECK(cuMemFree(small));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(small));
  CHECK(cuMemFree(large));
  CHECK(cuMemFree_v2(pitched)); /* either way */
  TRUE(free_bytes() == first);
}

static void launches(CUmodule module) {
  CUfunction fill, slow;
  CUdeviceptr out;
  CUdeviceptr_v1 narrow;
  CUtexref reference;
  CUstream stream;
  unsigned bytes;
  float back[4];
  CHECK(cuModuleGetFunction(&fill, module, "fill_f32"));
  CHECK(cuModuleGetFunction(&slow, module, "spin_1000"));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuModuleGetGlobal(&narrow, &bytes, module, "table")); /* it lies above */
  CHECK(cuMemAlloc_v2(&out, sizeof back));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunch(slow)); /* has no shape */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(fill, 4, 0, 1));
  CHECK(cuFuncSetBlockShape(fill, 4, 1, 1));
  CHECK(cuFuncSetSharedSize(fill, 0));
  CHECK(cuParamSeti(fill, 0, 4));
  CHECK(cuParamSetf(fill, 4, 2.5f));
  CHECK(cuParamSetv(fill, 8, &out, sizeof out));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuParamSetv(fill, 4090, &out, sizeof out));
  CHECK(cuParamSetSize(fill, 12));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunch(fill)); /* some are missing */
  CHECK(cuParamSetSize(fill, 16));
  CHECK(cuTexRefCreate(&reference));
  CHECK(cuParamSetTexRef(fill, CU_PARAM_TR_DEFAULT, reference));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuParamSetTexRef(fill, 3, reference));
  CHECK(cuTexRefDestroy(reference));
  CHECK(cuLaunch(fill));
  CHECK(cuMemcpyDtoH_v2(back, out, sizeof back));
  TRUE(back[0] == 2.5f && back[3] == 2.5f);
  CHECK(cuParamSetf(fill, 4, 1.5f));
  CHECK(cuLaunchGrid(fill, 1, 1));
  CHECK(cuMemcpyDtoH_v2(back, out, sizeof back));
  TRUE(back[3] == 1.5f);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuFuncSetBlockShape(slow, 1, 1, 1));
  for (int i = 0; i < 20; i++) CHECK(cuLaunchGridAsync(slow, 1, 1, stream));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  CHECK(cuStreamSynchronize(stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchGridAsync(slow, 0, 1, stream));
}

static void attached(CUcontext context) {
  CUcontext again, old;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxAttach(&again, 1));
  CHECK(cuCtxAttach(&again, 0));
  TRUE(again == context);
  CHECK(cuCtxDetach(context));
  CHECK(cuCtxSynchronize()); /* it lives */
  CHECK(cuCtxPopCurrent_v2(&old));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(context)); /* it is not current */
  CHECK(cuCtxPushCurrent_v2(context));
  CHECK(cuCtxDetach(context));
  CHECK(cuCtxGetCurrent(&old));
  TRUE(old == NULL);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(context));
}

/* One waits for what the other was doing before, and both for both. */
static void two_devices(void) {
  CUcontext contexts[2], old;
  CUstream streams[2];
  CUDA_LAUNCH_PARAMS list[2];
  for (int i = 0; i < 2; i++) {
    CUmodule module;
    CUfunction busy;
    CHECK(cuCtxCreate_v2(&contexts[i], 0, i));
    CHECK(cuModuleLoadData(&module, TEXT));
    CHECK(cuModuleGetFunction(&busy, module, "spin_1000"));
    CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    list[i] = (CUDA_LAUNCH_PARAMS){NULL, 1, 1, 1, 1, 1, 1, 0, streams[i], NULL};
    CHECK(cuModuleGetFunction(&list[i].function, module, "spin_100"));
    for (int j = 0; j < 100 * i; j++) launch(busy, streams[i]);
  }
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 4));
  list[1].blockDimX = 2;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
  list[1].blockDimX = 1;
  list[1].hStream = streams[0];
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0)); /* one device, twice */
  list[1].hStream = streams[1];
  CHECK(cuLaunchCooperativeKernelMultiDevice(list, 2,
                                             CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                                                 CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC));
  CHECK(cuStreamSynchronize(streams[0]));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[1])); /* each for itself */
  CHECK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
  CHECK(cuStreamSynchronize(streams[0]));
  CHECK(cuStreamSynchronize(streams[1]));
  for (int i = 1; i >= 0; i--) CHECK(cuCtxDestroy_v2(contexts[i]));
  CHECK(cuCtxGetCurrent(&old));
  TRUE(old == NULL);
}

int main(void) {
  CUmodule module;
  CUcontext context = begin();
  memory();
  CHECK(cuModuleLoadData(&module, TEXT));
  launches(module);
  attached(context);
  two_devices();
  puts("ok");
  return 0;
}
