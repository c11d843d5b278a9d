/*
 * array_layout.c - formats of array elements, how much memory a descriptor means, and which descriptors the driver
 * takes. Pure but for the device's limits, which are asked of process/attribute.c. Called by the other array files.
 *
 * Memory is laid out in blocks of 64 bytes by 8 rows [published: the block-linear layout of the hardware]; rows of
 * one-dimensional arrays in steps of 64 bytes. Here the bytes of a row simply follow each other: only the sizes count.
 */
#include "simgpu/arrays/array.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

#define BLOCK_WIDTH_BYTES 64
#define BLOCK_ROWS 8
#define TEXEL_SHIFT 2 /* compressed formats: blocks of 4 x 4 texels */

/* ---- formats ---- */

#define U8 CU_AD_FORMAT_UNSIGNED_INT8
#define U16 CU_AD_FORMAT_UNSIGNED_INT16

static const struct {
  CUarray_format format;
  uint8_t count;
  struct sim_plane planes[SIM_ARRAY_PLANES_MAX];
} planar[] = {
    {CU_AD_FORMAT_NV12, 2, {{0, 0, 8, 1, U8}, {1, 1, 16, 2, U8}}},
    {CU_AD_FORMAT_P010, 2, {{0, 0, 16, 1, U16}, {1, 1, 32, 2, U16}}},
    {CU_AD_FORMAT_P016, 2, {{0, 0, 16, 1, U16}, {1, 1, 32, 2, U16}}},
    {CU_AD_FORMAT_NV16, 2, {{0, 0, 8, 1, U8}, {1, 0, 16, 2, U8}}},
    {CU_AD_FORMAT_P210, 2, {{0, 0, 16, 1, U16}, {1, 0, 32, 2, U16}}},
    {CU_AD_FORMAT_P216, 2, {{0, 0, 16, 1, U16}, {1, 0, 32, 2, U16}}},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 2, {{0, 0, 8, 1, U8}, {0, 0, 16, 2, U8}}},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 2, {{0, 0, 16, 1, U16}, {0, 0, 32, 2, U16}}},
    {CU_AD_FORMAT_Y444_PLANAR8, 3, {{0, 0, 8, 1, U8}, {0, 0, 8, 1, U8}, {0, 0, 8, 1, U8}}},
    {CU_AD_FORMAT_Y444_PLANAR10, 3, {{0, 0, 16, 1, U16}, {0, 0, 16, 1, U16}, {0, 0, 16, 1, U16}}},
};

/* Bits of an element of the formats with one plane; per channel where channel is set. 0: not such a format. */
static unsigned bits_of(CUarray_format format, bool *ret_per_channel) {
  *ret_per_channel = false;
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
    return *ret_per_channel = true, 8;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
    return *ret_per_channel = true, 16;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT:
    return *ret_per_channel = true, 32;
  case CU_AD_FORMAT_UNORM_INT8X1:
  case CU_AD_FORMAT_SNORM_INT8X1:
    return 8;
  case CU_AD_FORMAT_UNORM_INT8X2:
  case CU_AD_FORMAT_SNORM_INT8X2:
  case CU_AD_FORMAT_UNORM_INT16X1:
  case CU_AD_FORMAT_SNORM_INT16X1:
  case CU_AD_FORMAT_YUY2:
    return 16;
  case CU_AD_FORMAT_UNORM_INT8X4:
  case CU_AD_FORMAT_SNORM_INT8X4:
  case CU_AD_FORMAT_UNORM_INT16X2:
  case CU_AD_FORMAT_SNORM_INT16X2:
  case CU_AD_FORMAT_UNORM_INT_101010_2:
  case CU_AD_FORMAT_Y210:
  case CU_AD_FORMAT_Y216:
  case CU_AD_FORMAT_AYUV:
  case CU_AD_FORMAT_Y410:
    return 32;
  case CU_AD_FORMAT_UNORM_INT16X4:
  case CU_AD_FORMAT_SNORM_INT16X4:
  case CU_AD_FORMAT_Y416:
    return 64;
  default:
    return 0;
  }
}

/* Bytes of a block of 4 x 4 texels; 0: not compressed. */
static unsigned block_bytes_of(CUarray_format format) {
  if (format < CU_AD_FORMAT_BC1_UNORM || format > CU_AD_FORMAT_BC7_UNORM_SRGB) return 0;
  bool half =
      format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM || format == CU_AD_FORMAT_BC4_SNORM;
  return half ? 8 : 16;
}

unsigned sim_format_planes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                           struct sim_plane ret_planes[SIM_ARRAY_PLANES_MAX]) {
  for (size_t i = 0; i < sizeof planar / sizeof *planar; i++) {
    if (planar[i].format != descriptor->Format) continue;
    for (unsigned plane = 0; plane < planar[i].count; plane++) ret_planes[plane] = planar[i].planes[plane];
    return planar[i].count;
  }
  bool per_channel;
  unsigned bits = bits_of(descriptor->Format, &per_channel), channels = descriptor->NumChannels;
  if (per_channel && channels != 1 && channels != 2 && channels != 4) return 0;
  if (per_channel) bits *= channels;
  unsigned block_bytes = block_bytes_of(descriptor->Format);
  if (block_bytes) {
    ret_planes[0] = (struct sim_plane){TEXEL_SHIFT, TEXEL_SHIFT, (uint8_t)(block_bytes * 8), 0, descriptor->Format};
    return 1;
  }
  ret_planes[0] = (struct sim_plane){0, 0, (uint8_t)bits, (uint8_t)channels, descriptor->Format};
  return bits != 0 && channels >= 1 && channels <= 4;
}

/* ---- sizes ---- */

static uint64_t shifted(uint64_t extent, unsigned shift) {
  return (extent + (1u << shift) - 1) >> shift;
}

static struct sim_layout plane_layout(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, const struct sim_plane *plane) {
  uint64_t height = descriptor->Height ? descriptor->Height : 1;
  struct sim_layout layout = {.row_bytes = shifted(descriptor->Width, plane->width_shift) * plane->bits / 8,
                              .rows = shifted(height, plane->height_shift),
                              .slices = descriptor->Depth ? descriptor->Depth : 1};
  layout.pitch_bytes = sim_round_up(layout.row_bytes, BLOCK_WIDTH_BYTES);
  uint64_t rows = descriptor->Height > 1 ? sim_round_up(layout.rows, BLOCK_ROWS) : 1;
  layout.slice_bytes = layout.pitch_bytes * rows;
  return layout;
}

uint64_t sim_plane_offset(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned plane) {
  struct sim_plane planes[SIM_ARRAY_PLANES_MAX];
  unsigned count = sim_format_planes(descriptor, planes);
  uint64_t bytes = 0;
  for (unsigned i = 0; i < plane && i < count; i++) {
    struct sim_layout layout = plane_layout(descriptor, &planes[i]);
    bytes += layout.slice_bytes * layout.slices;
  }
  return bytes;
}

bool sim_layout_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, struct sim_layout *ret_layout) {
  struct sim_plane planes[SIM_ARRAY_PLANES_MAX];
  if (sim_format_planes(descriptor, planes) != 1) return false;
  *ret_layout = plane_layout(descriptor, &planes[0]);
  return true;
}

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  return descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

unsigned sim_levels_max(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  uint64_t largest = descriptor->Width > descriptor->Height ? descriptor->Width : descriptor->Height;
  if (!is_layered(descriptor) && descriptor->Depth > largest) largest = descriptor->Depth;
  unsigned levels = 1;
  while (largest >>= 1) levels++;
  return levels;
}

static size_t halved(size_t extent, unsigned times) {
  return extent == 0 ? 0 : extent >> times ? extent >> times : 1;
}

CUDA_ARRAY3D_DESCRIPTOR sim_level_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level) {
  CUDA_ARRAY3D_DESCRIPTOR at = *descriptor;
  at.Width = halved(at.Width, level);
  at.Height = halved(at.Height, level);
  if (!is_layered(descriptor)) at.Depth = halved(at.Depth, level);
  return at;
}

uint64_t sim_level_offset(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level) {
  uint64_t bytes = 0;
  for (unsigned i = 0; i < level; i++) {
    CUDA_ARRAY3D_DESCRIPTOR at = sim_level_descriptor(descriptor, i);
    bytes += sim_plane_offset(&at, SIM_ARRAY_PLANES_MAX);
  }
  return bytes;
}

/* ---- what the driver takes ---- */

#define LIMIT(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name

struct bounds { /* attributes; 0: that extent must be 0 */
  CUdevice_attribute width, height, depth;
};

static bool within(const struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, struct bounds bounds) {
  const CUdevice_attribute attributes[3] = {bounds.width, bounds.height, bounds.depth};
  const size_t extents[3] = {descriptor->Width, descriptor->Height, descriptor->Depth};
  for (int i = 0; i < 3; i++) {
    int most = 0;
    if (attributes[i] && cuDeviceGetAttribute(&most, attributes[i], context->ordinal) != CUDA_SUCCESS) return false;
    if (extents[i] > (size_t)most || (extents[i] == 0) != (most == 0)) return false;
  }
  return true;
}

static bool fits_texture(const struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *d, bool mipmapped) {
  bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;
  if (d->Flags & CUDA_ARRAY3D_CUBEMAP) {
    if (d->Width != d->Height || d->Depth % 6 || (!layered && d->Depth != 6)) return false;
    return within(context, d,
                  layered ? (struct bounds){LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH), LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH),
                                            LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)}
                          : (struct bounds){LIMIT(TEXTURECUBEMAP_WIDTH), LIMIT(TEXTURECUBEMAP_WIDTH),
                                            LIMIT(TEXTURE2D_LAYERED_LAYERS)});
  }
  if (layered && d->Height == 0)
    return within(context, d, (struct bounds){LIMIT(TEXTURE1D_LAYERED_WIDTH), 0, LIMIT(TEXTURE1D_LAYERED_LAYERS)});
  if (layered)
    return within(context, d,
                  (struct bounds){LIMIT(TEXTURE2D_LAYERED_WIDTH), LIMIT(TEXTURE2D_LAYERED_HEIGHT),
                                  LIMIT(TEXTURE2D_LAYERED_LAYERS)});
  if (d->Depth)
    return within(context, d,
                  (struct bounds){LIMIT(TEXTURE3D_WIDTH), LIMIT(TEXTURE3D_HEIGHT), LIMIT(TEXTURE3D_DEPTH)}) ||
           within(context, d,
                  (struct bounds){LIMIT(TEXTURE3D_WIDTH_ALTERNATE), LIMIT(TEXTURE3D_HEIGHT_ALTERNATE),
                                  LIMIT(TEXTURE3D_DEPTH_ALTERNATE)});
  if (d->Height == 0)
    return within(context, d,
                  (struct bounds){mipmapped ? LIMIT(TEXTURE1D_MIPMAPPED_WIDTH) : LIMIT(TEXTURE1D_WIDTH), 0, 0});
  if (d->Flags & CUDA_ARRAY3D_TEXTURE_GATHER)
    return within(context, d, (struct bounds){LIMIT(TEXTURE2D_GATHER_WIDTH), LIMIT(TEXTURE2D_GATHER_HEIGHT), 0});
  return within(context, d,
                mipmapped ? (struct bounds){LIMIT(TEXTURE2D_MIPMAPPED_WIDTH), LIMIT(TEXTURE2D_MIPMAPPED_HEIGHT), 0}
                          : (struct bounds){LIMIT(TEXTURE2D_WIDTH), LIMIT(TEXTURE2D_HEIGHT), 0});
}

static bool fits_surface(const struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *d) {
  bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;
  if (d->Flags & CUDA_ARRAY3D_CUBEMAP)
    return within(context, d,
                  (struct bounds){LIMIT(SURFACECUBEMAP_LAYERED_WIDTH), LIMIT(SURFACECUBEMAP_LAYERED_WIDTH),
                                  LIMIT(SURFACECUBEMAP_LAYERED_LAYERS)});
  if (layered && d->Height == 0)
    return within(context, d, (struct bounds){LIMIT(SURFACE1D_LAYERED_WIDTH), 0, LIMIT(SURFACE1D_LAYERED_LAYERS)});
  if (layered)
    return within(context, d,
                  (struct bounds){LIMIT(SURFACE2D_LAYERED_WIDTH), LIMIT(SURFACE2D_LAYERED_HEIGHT),
                                  LIMIT(SURFACE2D_LAYERED_LAYERS)});
  if (d->Depth)
    return within(context, d, (struct bounds){LIMIT(SURFACE3D_WIDTH), LIMIT(SURFACE3D_HEIGHT), LIMIT(SURFACE3D_DEPTH)});
  if (d->Height == 0) return within(context, d, (struct bounds){LIMIT(SURFACE1D_WIDTH), 0, 0});
  return within(context, d, (struct bounds){LIMIT(SURFACE2D_WIDTH), LIMIT(SURFACE2D_HEIGHT), 0});
}

#define FLAGS_KNOWN                                                                                                    \
  (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |             \
   CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |  \
   CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)

CUresult sim_descriptor_check(const struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                              bool mipmapped) {
  struct sim_plane planes[SIM_ARRAY_PLANES_MAX];
  unsigned flags = descriptor->Flags;
  unsigned count = sim_format_planes(descriptor, planes);
  if (count == 0 || flags & ~FLAGS_KNOWN) return CUDA_ERROR_INVALID_VALUE;
  bool flat = descriptor->Height && (!descriptor->Depth || flags & CUDA_ARRAY3D_LAYERED);
  if (flags & CUDA_ARRAY3D_TEXTURE_GATHER && (!flat || descriptor->Depth)) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CUDA_ARRAY3D_SPARSE && (!descriptor->Height || flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
    return CUDA_ERROR_INVALID_VALUE; /* 2D, 2D layered or 3D */
  if (count > 1 && (!flat || mipmapped)) return CUDA_ERROR_INVALID_VALUE;
  if (!fits_texture(context, descriptor, mipmapped)) return CUDA_ERROR_INVALID_VALUE;
  bool surface = flags & CUDA_ARRAY3D_SURFACE_LDST;
  return surface && !fits_surface(context, descriptor) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
