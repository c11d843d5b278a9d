/*
 * arrays: what they are charged and give back, what their descriptors may say, and bytes that are copied into and out
 * of them, by every way and in graphs.
 */
#include "program.h"
#include <stdbool.h>

#define GRANULE (2ull << 20)

static size_t free_bytes(void) {
  size_t unused, total;
  CHECK(cuMemGetInfo_v2(&unused, &total));
  return unused;
}

static CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth, CUarray_format format,
                                     unsigned channels, unsigned flags) {
  return (CUDA_ARRAY3D_DESCRIPTOR){width, height, depth, format, channels, flags};
}

static CUarray make(CUDA_ARRAY3D_DESCRIPTOR descriptor) {
  CUarray array;
  CHECK(cuArray3DCreate_v2(&array, &descriptor));
  return array;
}

#define FLOAT CU_AD_FORMAT_FLOAT
#define BYTE CU_AD_FORMAT_UNSIGNED_INT8

static void charges(void) {
  size_t before = free_bytes();
  CUarray large = make(shape(1024, 1024, 0, FLOAT, 1, 0)), small[5];
  TRUE(before - free_bytes() == 4 << 20);
  CHECK(cuArrayDestroy(large));
  TRUE(before == free_bytes());
  /* Small ones share granules, first fit: three of 1.25 MiB take three, and one of 0.5 MiB finds a place. */
  for (int i = 0; i < 3; i++) small[i] = make(shape(1280, 1024, 0, BYTE, 1, 0));
  TRUE(before - free_bytes() == 3 * GRANULE);
  small[3] = make(shape(512, 1024, 0, BYTE, 1, 0));
  small[4] = make(shape(1, 0, 0, BYTE, 1, 0));
  TRUE(before - free_bytes() == 3 * GRANULE);
  CHECK(cuArrayDestroy(small[1]));
  TRUE(before - free_bytes() == 2 * GRANULE);
  CHECK(cuArrayDestroy(small[0]));
  TRUE(before - free_bytes() == 2 * GRANULE); /* the half and the byte are in it */
  for (int i = 2; i < 5; i++) CHECK(cuArrayDestroy(small[i]));
  TRUE(before == free_bytes());
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(large));
  /* With a context goes what was in it. */
  CUcontext context;
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  make(shape(4096, 1024, 0, BYTE, 1, 0));
  make(shape(16, 16, 0, BYTE, 1, 0));
  CHECK(cuCtxDestroy_v2(context));
  TRUE(before == free_bytes());
  /* More than there is. */
  CUDA_ARRAY3D_DESCRIPTOR huge = shape(131072, 65536, 0, FLOAT, 4, 0);
  CUarray untouched = (CUarray)1;
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuArray3DCreate_v2(&untouched, &huge));
  TRUE(untouched == (CUarray)1 && before == free_bytes());
  /* Nothing, until memory is mapped into it. */
  CUarray sparse = make(shape(4096, 4096, 0, FLOAT, 1, CUDA_ARRAY3D_SPARSE));
  CUarray deferred = make(shape(4096, 1000, 0, FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING));
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
  TRUE(before == free_bytes());
  CHECK(cuArrayGetMemoryRequirements(&needs, deferred, 0));
  TRUE(needs.size == 4096 * 1000 * 4 / 65536 * 65536 + 65536 * (4096 * 1000 * 4 % 65536 != 0) && needs.alignment);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needs, sparse, 0));
  CHECK(cuArrayDestroy(sparse));
  CHECK(cuArrayDestroy(deferred));
}

static void descriptors(void) {
  static const struct {
    CUresult code;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
  } rows[] = {
      {CUDA_SUCCESS, {131072, 0, 0, FLOAT, 1, 0}},
      {CUDA_ERROR_INVALID_VALUE, {131073, 0, 0, FLOAT, 1, 0}},
      {CUDA_ERROR_INVALID_VALUE, {0, 1, 0, FLOAT, 1, 0}},
      {CUDA_ERROR_INVALID_VALUE, {16, 0, 4, FLOAT, 1, 0}}, /* depth without height */
      {CUDA_ERROR_INVALID_VALUE, {16, 16, 0, FLOAT, 3, 0}},
      {CUDA_ERROR_INVALID_VALUE, {16, 16, 0, 0x77, 1, 0}},
      {CUDA_ERROR_INVALID_VALUE, {16, 16, 0, FLOAT, 1, 0x4000}},
      {CUDA_SUCCESS, {64, 64, 64, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_SURFACE_LDST}},
      {CUDA_SUCCESS, {16, 0, 4, FLOAT, 1, CUDA_ARRAY3D_LAYERED}},
      {CUDA_SUCCESS, {16, 16, 2048, BYTE, 1, CUDA_ARRAY3D_LAYERED}},
      {CUDA_ERROR_INVALID_VALUE, {16, 16, 2049, BYTE, 1, CUDA_ARRAY3D_LAYERED}},
      {CUDA_SUCCESS, {32, 32, 6, FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}},
      {CUDA_ERROR_INVALID_VALUE, {32, 16, 6, FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}},
      {CUDA_ERROR_INVALID_VALUE, {32, 32, 12, FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}},
      {CUDA_SUCCESS, {32, 32, 12, FLOAT, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED}},
      {CUDA_SUCCESS, {64, 64, 0, FLOAT, 1, CUDA_ARRAY3D_TEXTURE_GATHER}},
      {CUDA_ERROR_INVALID_VALUE, {64, 64, 2, FLOAT, 1, CUDA_ARRAY3D_TEXTURE_GATHER}},
      {CUDA_ERROR_INVALID_VALUE, {64, 0, 0, FLOAT, 1, CUDA_ARRAY3D_SPARSE}},
      {CUDA_ERROR_INVALID_VALUE, {65536, 0, 0, FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST}},
      {CUDA_SUCCESS, {64, 64, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR back;
    EXPECT(rows[i].code, cuArray3DCreate_v2(&array, &rows[i].descriptor));
    if (rows[i].code != CUDA_SUCCESS) continue;
    CHECK(cuArray3DGetDescriptor_v2(&back, array));
    TRUE(memcmp(&back, &rows[i].descriptor, sizeof back) == 0);
    CHECK(cuArrayDestroy(array));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&back, array));
  }
  CUDA_ARRAY_DESCRIPTOR flat = {640, 480, BYTE, 4}, back;
  CUarray array;
  CHECK(cuArrayCreate_v2(&array, &flat));
  CHECK(cuArrayGetDescriptor_v2(&back, array));
  TRUE(back.Width == 640 && back.Height == 480 && back.Format == BYTE && back.NumChannels == 4);
  CHECK(cuArrayDestroy(array));
}

static void parts(void) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = shape(100, 60, 0, FLOAT, 1, 0), at;
  CUmipmappedArray mipmap;
  CUarray level, again, plane;
  size_t before = free_bytes();
  CHECK(cuMipmappedArrayCreate(&mipmap, &descriptor, 100)); /* clamped to 7 */
  CHECK(cuMipmappedArrayGetLevel(&level, mipmap, 6));
  CHECK(cuMipmappedArrayGetLevel(&again, mipmap, 6));
  CHECK(cuArray3DGetDescriptor_v2(&at, level));
  TRUE(level == again && at.Width == 1 && at.Height == 1 && at.Depth == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 7));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(again));
  CHECK(cuMipmappedArrayDestroy(mipmap));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&at, again));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
  CUarray video = make(shape(1920, 1080, 0, CU_AD_FORMAT_NV12, 3, 0));
  CHECK(cuArrayGetPlane(&plane, video, 1));
  CHECK(cuArray3DGetDescriptor_v2(&at, plane));
  TRUE(at.Width == 960 && at.Height == 540 && at.NumChannels == 2 && at.Format == BYTE);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayGetPlane(&plane, video, 2));
  CHECK(cuArrayDestroy(video));
  TRUE(before == free_bytes());
}

enum { WIDTH = 52, HEIGHT = 13, DEPTH = 3, BYTES = WIDTH * HEIGHT * DEPTH };
static unsigned char out[BYTES], back[BYTES];

static void fill(unsigned seed) {
  for (size_t i = 0; i < BYTES; i++) out[i] = (unsigned char)((i * 131 + seed) >> 2);
  memset(back, 0, BYTES);
}

static CUDA_MEMCPY3D whole(CUarray array, bool to_array, void *host) {
  CUDA_MEMCPY3D copy = {.WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = DEPTH};
  copy.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
  copy.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
  copy.srcHost = copy.dstHost = host;
  copy.srcArray = copy.dstArray = array;
  copy.srcPitch = copy.dstPitch = WIDTH;
  copy.srcHeight = copy.dstHeight = HEIGHT;
  return copy;
}

static void shaped_copies(void) {
  CUarray first = make(shape(WIDTH / 4, HEIGHT, DEPTH, FLOAT, 1, 0)),
          second = make(shape(WIDTH, HEIGHT, DEPTH, BYTE, 1, 0));
  CUDA_MEMCPY3D in = whole(first, true, out), between = whole(first, false, NULL), home = whole(second, false, back);
  between.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  between.dstArray = second;
  fill(1);
  CHECK(cuMemcpy3D_v2(&in));
  CHECK(cuMemcpy3DAsync_v2(&between, NULL));
  CHECK(cuMemcpy3D_v2(&home));
  TRUE(memcmp(out, back, BYTES) == 0);
  /* Past the end in each direction, and other things that are refused. */
  CUDA_MEMCPY3D bad = in;
  bad.dstXInBytes = 4;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&bad));
  bad = in, bad.dstY = 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&bad));
  bad = in, bad.dstZ = 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&bad));
  bad = in, bad.dstLOD = 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&bad));
  /* As nodes of a graph, captured. */
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  fill(2);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK(cuMemcpy3DAsync_v2(&in, stream));
  CHECK(cuMemcpy3DAsync_v2(&between, stream));
  CHECK(cuMemcpy3DAsync_v2(&home, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  TRUE(memcmp(out, back, BYTES) != 0);
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  TRUE(memcmp(out, back, BYTES) == 0);
  CHECK(cuArrayDestroy(first));
  CHECK(cuArrayDestroy(second));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(exec, stream));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3D_v2(&in));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

static void linear_copies(void) {
  enum { COUNT = 1000 };
  CUarray first = make(shape(COUNT, 0, 0, BYTE, 1, 0)), second = make(shape(COUNT / 2, 0, 0, BYTE, 2, 0));
  CUarray flat = make(shape(32, 32, 0, BYTE, 1, 0));
  CUdeviceptr memory;
  fill(3);
  CHECK(cuMemAlloc_v2(&memory, COUNT));
  CHECK(cuMemcpyHtoA_v2(first, 10, out, 500));
  CHECK(cuMemcpyAtoA_v2(second, 20, first, 10, 500));
  CHECK(cuMemcpyAtoD_v2(memory, second, 20, 500));
  CHECK(cuMemcpyDtoA_v2(first, 400, memory, 500));
  CHECK(cuMemcpyAtoH_v2(back, first, 400, 500));
  TRUE(memcmp(out, back, 500) == 0);
  fill(4);
  CHECK(cuMemcpyHtoAAsync_v2(first, 0, out, COUNT, NULL));
  CHECK(cuMemcpyAtoHAsync_v2(back, first, 0, COUNT, NULL));
  CHECK(cuCtxSynchronize());
  TRUE(memcmp(out, back, COUNT) == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(first, 1, out, COUNT));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(flat, 0, out, 32)); /* one-dimensional ones only */
  CHECK(cuMemFree_v2(memory));
  CHECK(cuArrayDestroy(first));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH_v2(back, first, 0, 1));
  CHECK(cuArrayDestroy(second));
  CHECK(cuArrayDestroy(flat));
}

static CUmemGenericAllocationHandle tile_pool(size_t bytes) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              .allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL};
  CHECK(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

static CUarrayMapInfo tiles(CUarray array, CUmemGenericAllocationHandle handle, unsigned x, unsigned width,
                            unsigned height) {
  CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY, .resource.array = array, .deviceBitMask = 1};
  info.subresource.sparseLevel.offsetX = x;
  info.subresource.sparseLevel.extentWidth = width;
  info.subresource.sparseLevel.extentHeight = height;
  info.subresource.sparseLevel.extentDepth = 1;
  info.memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
  info.memHandle.memHandle = handle;
  return info;
}

/* Mapped memory lives without its handle, until the last tile of it is unmapped or the array ends. */
static void sparse(void) {
  size_t before = free_bytes();
  CUarray array = make(shape(1024, 1000, 0, FLOAT, 1, CUDA_ARRAY3D_SPARSE));
  CUarray deferred = make(shape(1024, 1000, 0, FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING));
  CUDA_ARRAY_SPARSE_PROPERTIES told;
  CHECK(cuArrayGetSparseProperties(&told, array));
  TRUE(told.tileExtent.width == 128 && told.tileExtent.height == 128 && told.tileExtent.depth == 1);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayGetSparseProperties(&told, deferred));
  CUmemGenericAllocationHandle first = tile_pool(GRANULE), second = tile_pool(2 * GRANULE);
  CUarrayMapInfo info = tiles(array, first, 256, 512, 1000);
  CHECK(cuMemMapArrayAsync(&info, 1, NULL));
  CHECK(cuMemRelease(first));
  TRUE(before - free_bytes() == 3 * GRANULE);
  info = tiles(array, 0, 384, 128, 256); /* a hole in the middle */
  CHECK(cuMemMapArrayAsync(&info, 1, NULL));
  TRUE(before - free_bytes() == 3 * GRANULE);
  info = tiles(array, second, 0, 1024, 512); /* over the upper half of it */
  CHECK(cuMemMapArrayAsync(&info, 1, NULL));
  TRUE(before - free_bytes() == 3 * GRANULE);
  info = tiles(array, 0, 0, 1024, 1000);
  CHECK(cuMemMapArrayAsync(&info, 1, NULL));
  TRUE(before - free_bytes() == 2 * GRANULE); /* second has its handle */
  info = tiles(array, second, 64, 128, 128);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(&info, 1, NULL)); /* not at a tile */
  info = tiles(array, second, 0, 1024, 1152);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(&info, 1, NULL)); /* more than the memory */
  info = tiles(deferred, second, 0, 0, 0);
  CHECK(cuMemMapArrayAsync(&info, 1, NULL));
  CHECK(cuMemRelease(second));
  TRUE(before - free_bytes() == 2 * GRANULE);
  CUDA_MEMCPY3D in = whole(deferred, true, out);
  in.Depth = 1;
  CHECK(cuMemcpy3D_v2(&in));
  CHECK(cuArrayDestroy(deferred));
  TRUE(before == free_bytes());
  CHECK(cuArrayDestroy(array));
}

static void objects(void) {
  CUarray array = make(shape(64, 64, 0, FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST)),
          plain = make(shape(64, 64, 0, BYTE, 1, 0));
  CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array}, told;
  CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_LINEAR, .maxAnisotropy = 4}, how_told;
  CUDA_RESOURCE_VIEW_DESC view = {.format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = 64, .height = 64}, view_told;
  CUtexObject texture;
  CUsurfObject surface;
  CUdeviceptr memory;
  CHECK(cuTexObjectCreate(&texture, &resource, &how, &view));
  CHECK(cuTexObjectGetResourceDesc(&told, texture));
  CHECK(cuTexObjectGetTextureDesc(&how_told, texture));
  CHECK(cuTexObjectGetResourceViewDesc(&view_told, texture));
  TRUE(told.res.array.hArray == array && how_told.maxAnisotropy == 4 && view_told.width == 64);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(texture)); /* another kind of object */
  CHECK(cuTexObjectDestroy(texture));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(texture));
  how.maxAnisotropy = 17;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &how, NULL));
  how.maxAnisotropy = 0;
  view.lastMipmapLevel = 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &how, &view));
  CHECK(cuSurfObjectCreate(&surface, &resource));
  CHECK(cuSurfObjectGetResourceDesc(&told, surface));
  CHECK(cuSurfObjectDestroy(surface));
  resource.res.array.hArray = plain;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &resource)); /* not made for it */
  CHECK(cuMemAlloc_v2(&memory, 65536));
  CUDA_RESOURCE_DESC line = {.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {memory, FLOAT, 1, 65536}};
  CHECK(cuTexObjectCreate(&texture, &line, &how, NULL));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceViewDesc(&view_told, texture)); /* it has none */
  CHECK(cuTexObjectDestroy(texture));
  line.res.linear.devPtr += 4;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &line, &how, NULL)); /* not aligned */
  CUDA_RESOURCE_DESC pitched = {.resType = CU_RESOURCE_TYPE_PITCH2D, .res.pitch2D = {memory, BYTE, 1, 60, 64, 64}};
  CHECK(cuTexObjectCreate(&texture, &pitched, &how, NULL));
  CHECK(cuTexObjectDestroy(texture));
  pitched.res.pitch2D.pitchInBytes = 65;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &pitched, &how, NULL));
  CHECK(cuMemFree_v2(memory));
  CHECK(cuArrayDestroy(array));
  CHECK(cuArrayDestroy(plain));
}

static void references(void) {
  CUarray array = make(shape(64, 64, 0, BYTE, 4, 0)), bound;
  CUtexref reference;
  CUarray_format format;
  CUaddress_mode mode;
  CUdeviceptr address;
  int channels;
  CHECK(cuTexRefCreate(&reference));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&bound, reference));
  CHECK(cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
  CHECK(cuTexRefGetArray(&bound, reference));
  CHECK(cuTexRefGetFormat(&format, &channels, reference));
  TRUE(bound == array && format == BYTE && channels == 4);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetAddress_v2(&address, reference));
  CHECK(cuTexRefSetAddressMode(reference, 2, CU_TR_ADDRESS_MODE_MIRROR));
  CHECK(cuTexRefGetAddressMode(&mode, reference, 2));
  TRUE(mode == CU_TR_ADDRESS_MODE_MIRROR);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddressMode(reference, 3, CU_TR_ADDRESS_MODE_MIRROR));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetMaxAnisotropy(reference, 17));
  CHECK(cuTexRefDestroy(reference));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefDestroy(reference));
  CHECK(cuArrayDestroy(array));
}

int main(void) {
  begin();
  charges();
  descriptors();
  parts();
  shaped_copies();
  linear_copies();
  sparse();
  objects();
  references();
  puts("ok");
  return 0;
}
