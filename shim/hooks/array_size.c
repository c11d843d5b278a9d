/*
 * array_size.c - how much device memory an array takes. Called by the hooks, in the program's thread.
 *
 * Drivers that know deferred mapping are asked: a twin of the array that holds nothing says what its memory would be.
 * Else it is computed from the descriptor in the device's block layout (64 bytes by 8 rows). Sparse arrays and those
 * with deferred mapping hold nothing.
 */
#include "hooks/array_size.h"

#include "gen/abi/real.h"
#include "hooks/capture_mode.h"
#include "ledger/granule.h"

#define BLOCK_WIDTH_BYTES 64
#define BLOCK_ROWS 8
#define BITS_UNKNOWN 64 /* per element: the maximum of the video formats */

/* ---- from the descriptor ---- */

static uint64_t element_bits(CUarray_format format, unsigned int channels) {
  if (!channels) channels = 1;
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
    return 8ull * channels;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
    return 16ull * channels;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT:
    return 32ull * channels;
  case CU_AD_FORMAT_UNORM_INT8X1:
  case CU_AD_FORMAT_SNORM_INT8X1:
    return 8;
  case CU_AD_FORMAT_UNORM_INT8X2:
  case CU_AD_FORMAT_SNORM_INT8X2:
  case CU_AD_FORMAT_UNORM_INT16X1:
  case CU_AD_FORMAT_SNORM_INT16X1:
    return 16;
  case CU_AD_FORMAT_UNORM_INT8X4:
  case CU_AD_FORMAT_SNORM_INT8X4:
  case CU_AD_FORMAT_UNORM_INT16X2:
  case CU_AD_FORMAT_SNORM_INT16X2:
    return 32;
  case CU_AD_FORMAT_BC1_UNORM:
  case CU_AD_FORMAT_BC1_UNORM_SRGB:
  case CU_AD_FORMAT_BC4_UNORM:
  case CU_AD_FORMAT_BC4_SNORM:
    return 4;
  case CU_AD_FORMAT_BC2_UNORM:
  case CU_AD_FORMAT_BC2_UNORM_SRGB:
  case CU_AD_FORMAT_BC3_UNORM:
  case CU_AD_FORMAT_BC3_UNORM_SRGB:
  case CU_AD_FORMAT_BC5_UNORM:
  case CU_AD_FORMAT_BC5_SNORM:
  case CU_AD_FORMAT_BC6H_UF16:
  case CU_AD_FORMAT_BC6H_SF16:
  case CU_AD_FORMAT_BC7_UNORM:
  case CU_AD_FORMAT_BC7_UNORM_SRGB:
    return 8;
  case CU_AD_FORMAT_NV12:
    return 12;
  default:
    return BITS_UNKNOWN;
  }
}

struct extent {
  uint64_t width, height, depth, element_bits;
};

static uint64_t level_bytes(const struct extent *extent) {
  uint64_t row, area, bytes;
  if (__builtin_mul_overflow(extent->width, extent->element_bits, &row)) return UINT64_MAX;
  row = vg_round_up(row / 8 + (row % 8 != 0), BLOCK_WIDTH_BYTES);
  uint64_t rows = extent->height > 1 ? vg_round_up(extent->height, BLOCK_ROWS) : 1;
  if (__builtin_mul_overflow(row, rows, &area)) return UINT64_MAX;
  if (__builtin_mul_overflow(area, extent->depth ? extent->depth : 1, &bytes)) return UINT64_MAX;
  return bytes;
}

static uint64_t all_levels_bytes(struct extent extent, unsigned int levels, bool layered) {
  uint64_t bytes = 0;
  for (unsigned int i = 0; i < levels; i++) {
    uint64_t level = level_bytes(&extent);
    if (__builtin_add_overflow(bytes, level, &bytes)) return UINT64_MAX;
    extent.width = extent.width > 1 ? extent.width / 2 : 1;
    extent.height = extent.height > 1 ? extent.height / 2 : extent.height;
    if (!layered) extent.depth = extent.depth > 1 ? extent.depth / 2 : extent.depth;
  }
  return bytes;
}

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  return descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

/* The driver clamps the number of levels: the last one is a single element. */
static unsigned int levels_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int wanted) {
  uint64_t largest = descriptor->Width > descriptor->Height ? descriptor->Width : descriptor->Height;
  if (!is_layered(descriptor) && descriptor->Depth > largest) largest = descriptor->Depth;
  unsigned int most = 1;
  while (largest >>= 1) most++;
  return wanted == 0 ? 1 : wanted < most ? wanted : most;
}

static uint64_t computed(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels) {
  struct extent extent = {descriptor->Width, descriptor->Height, descriptor->Depth,
                          element_bits(descriptor->Format, descriptor->NumChannels)};
  return all_levels_bytes(extent, levels_of(descriptor, levels), is_layered(descriptor));
}

/* ---- from the driver ---- */

static CUresult ask_array(const CUDA_ARRAY3D_DESCRIPTOR *twin, CUdevice device, CUDA_ARRAY_MEMORY_REQUIREMENTS *ret) {
  CUarray array;
  if (!HAVE(cuArrayGetMemoryRequirements)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = REAL(cuArray3DCreate_v2)(&array, twin);
  if (result != CUDA_SUCCESS) return result;
  result = REAL(cuArrayGetMemoryRequirements)(ret, array, device);
  REAL(cuArrayDestroy)(array);
  return result;
}

static CUresult ask_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *twin, unsigned int levels, CUdevice device,
                           CUDA_ARRAY_MEMORY_REQUIREMENTS *ret) {
  CUmipmappedArray array;
  if (!HAVE(cuMipmappedArrayGetMemoryRequirements)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = REAL(cuMipmappedArrayCreate)(&array, twin, levels);
  if (result != CUDA_SUCCESS) return result;
  result = REAL(cuMipmappedArrayGetMemoryRequirements)(ret, array, device);
  REAL(cuMipmappedArrayDestroy)(array);
  return result;
}

/* NOT_FOUND: the driver does not know deferred mapping. In mode RELAXED, so that these calls end no capture. */
static CUresult ask(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels, uint64_t *ret_bytes) {
  CUDA_ARRAY3D_DESCRIPTOR twin = *descriptor;
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
  CUdevice device;
  twin.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
  CUresult result = REAL(cuCtxGetDevice)(&device);
  if (result != CUDA_SUCCESS) return result;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged = vg_capture_mode_exchange(&mode);
  result = levels ? ask_mipmap(&twin, levels, device, &needs) : ask_array(&twin, device, &needs);
  if (exchanged) vg_capture_mode_exchange(&mode);
  *ret_bytes = needs.size;
  return result;
}

CUresult vg_array_refusal(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels) {
  uint64_t bytes;
  CUresult result = ask(descriptor, levels, &bytes);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

uint64_t vg_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels) {
  uint64_t bytes;
  if (descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
  if (ask(descriptor, levels, &bytes) != CUDA_SUCCESS || !bytes) bytes = computed(descriptor, levels);
  return vg_round_up(bytes, VG_ARRAY_PAGE_BYTES);
}
