/*
 * arrays: arrays, mipmaps and texture objects: what they take, what is in them, what they answer about themselves.
 */
#include "row.h"

static CUarray array;

static CUDA_ARRAY3D_DESCRIPTOR flat(size_t width, size_t height) {
  return (CUDA_ARRAY3D_DESCRIPTOR){width, height, 0, CU_AD_FORMAT_FLOAT, 1, 0};
}

static void array_memory(void) {
  CUDA_ARRAY_DESCRIPTOR wanted = {2048, 2048, CU_AD_FORMAT_FLOAT, 1}, got = {0};
  begin();
  size_t before = free_bytes();
  CODE("create", cuArrayCreate_v2(&array, &wanted));
  fact("at_least_16_mib", before - free_bytes() >= 16 * MIB);
  CODE("ask", cuArrayGetDescriptor_v2(&got, array));
  fact("same", got.Width == 2048 && got.Height == 2048 && got.Format == CU_AD_FORMAT_FLOAT && got.NumChannels == 1);
  CODE("destroy", cuArrayDestroy(array));
  taken("after", before);
}

/* 4 GiB for each layer: more of them than fit on the device. */
static void array_over_limit(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {16384, 16384, 0, CU_AD_FORMAT_FLOAT, 4, 0};
  begin();
  size_t before = free_bytes();
  wanted.Depth = total_bytes() / (4ull << 30) + 1;
  array = (CUarray)UNTOUCHED;
  CODE("create", cuArray3DCreate_v2(&array, &wanted));
  fact("untouched", array == (CUarray)UNTOUCHED);
  taken("after", before);
}

static void array_refused(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = flat(0, 16);
  begin();
  CODE("no_width", cuArray3DCreate_v2(&array, &wanted));
  wanted = flat(16, 16);
  wanted.NumChannels = 3;
  CODE("three_channels", cuArray3DCreate_v2(&array, &wanted));
  wanted.NumChannels = 1;
  wanted.Format = (CUarray_format)0x7777;
  CODE("format", cuArray3DCreate_v2(&array, &wanted));
  CODE("null", cuArray3DCreate_v2(NULL, &wanted));
}

static void array_deferred(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = flat(2048, 2048);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
  begin();
  NEED(cuArray3DCreate_v2(&array, &wanted));
  CODE("plain", cuArrayGetMemoryRequirements(&needs, array, 0));
  wanted.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
  size_t before = free_bytes();
  CODE("create", cuArray3DCreate_v2(&array, &wanted));
  taken("created", before);
  CODE("needs", cuArrayGetMemoryRequirements(&needs, array, 0));
  fact("at_least_16_mib", needs.size >= 16 * MIB);
}

static CUDA_MEMCPY2D copy_rows(void *from, void *to, size_t width, size_t height) {
  CUDA_MEMCPY2D copy = {.srcMemoryType = from ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
                        .dstMemoryType = to ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
                        .srcHost = from,
                        .dstHost = to,
                        .srcPitch = from ? width : 0,
                        .dstPitch = to ? width : 0,
                        .WidthInBytes = width,
                        .Height = height};
  if (!from) copy.srcArray = array;
  if (!to) copy.dstArray = array;
  return copy;
}

static void array_copies(void) {
  enum { WIDTH = 48, HEIGHT = 5 };
  float out[HEIGHT][WIDTH], in[HEIGHT][WIDTH] = {0};
  CUDA_ARRAY3D_DESCRIPTOR wanted = flat(WIDTH, HEIGHT);
  begin();
  for (int i = 0; i < WIDTH * HEIGHT; i++) out[i / WIDTH][i % WIDTH] = (float)i;
  NEED(cuArray3DCreate_v2(&array, &wanted));
  CUDA_MEMCPY2D there = copy_rows(out, NULL, sizeof *out, HEIGHT), back = copy_rows(NULL, in, sizeof *in, HEIGHT);
  CODE("there", cuMemcpy2D_v2(&there));
  CODE("back", cuMemcpy2D_v2(&back));
  fact("same", memcmp(in, out, sizeof in) == 0);
  there.WidthInBytes += 4;
  there.srcPitch += 4;
  CODE("too_wide", cuMemcpy2D_v2(&there));
}

static void mipmap_levels(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = flat(1024, 512), level = {0};
  CUmipmappedArray mipmap;
  begin();
  size_t before = free_bytes();
  CODE("create", cuMipmappedArrayCreate(&mipmap, &wanted, 100)); /* as many as there can be: 11 */
  fact("at_least_2_mib", before - free_bytes() >= 2 * MIB);
  CODE("level_3", cuMipmappedArrayGetLevel(&array, mipmap, 3));
  NEED(cuArray3DGetDescriptor_v2(&level, array));
  fact("width", (long long)level.Width);
  fact("height", (long long)level.Height);
  CODE("level_10", cuMipmappedArrayGetLevel(&array, mipmap, 10));
  CODE("level_11", cuMipmappedArrayGetLevel(&array, mipmap, 11));
  CODE("destroy", cuMipmappedArrayDestroy(mipmap));
  taken("after", before);
}

static void texture_objects(void) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = flat(64, 64);
  CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY}, got = {0};
  CUDA_TEXTURE_DESC look = {.filterMode = CU_TR_FILTER_MODE_LINEAR, .flags = CU_TRSF_NORMALIZED_COORDINATES},
                    seen = {0};
  CUtexObject texture = 0;
  begin();
  NEED(cuArray3DCreate_v2(&array, &wanted));
  resource.res.array.hArray = array;
  size_t before = free_bytes();
  CODE("create", cuTexObjectCreate(&texture, &resource, &look, NULL));
  fact("not_zero", texture != 0);
  taken("created", before);
  CODE("resource", cuTexObjectGetResourceDesc(&got, texture));
  fact("same", got.resType == resource.resType && got.res.array.hArray == array);
  CODE("look", cuTexObjectGetTextureDesc(&seen, texture));
  fact("same", seen.filterMode == look.filterMode && seen.flags == look.flags);
  CODE("destroy", cuTexObjectDestroy(texture));
  resource.resType = (CUresourcetype)9;
  CODE("kind", cuTexObjectCreate(&texture, &resource, &look, NULL));
}

static void texture_of_memory(void) {
  CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
  CUDA_TEXTURE_DESC look = {0};
  CUtexObject texture = 0;
  CUdeviceptr block;
  begin();
  NEED(cuMemAlloc_v2(&block, 4096));
  resource.res.linear.devPtr = block;
  resource.res.linear.format = CU_AD_FORMAT_FLOAT;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = 4096;
  CODE("create", cuTexObjectCreate(&texture, &resource, &look, NULL));
  CODE("destroy", cuTexObjectDestroy(texture));
  resource.res.linear.devPtr = block + 4;
  CODE("odd_address", cuTexObjectCreate(&texture, &resource, &look, NULL));
}

ROWS(ROW(array_memory), ROW(array_over_limit), ROW(array_refused), ROW(array_deferred), ROW(array_copies),
     ROW(mipmap_levels), ROW(texture_objects), ROW(texture_of_memory))
