/*
 * hook_memory_array.c - arrays and mipmapped arrays. Called by programs, any thread.
 *
 * Arrays have no address to look at, so their size is computed from the descriptor in the device's block layout (64
 * bytes by 8 rows). Large ones are charged by whole granules. Small ones are packed by the driver: the ledger charges
 * the granules that all small arrays of a device fill together. Sparse arrays and those with deferred mapping hold
 * nothing.
 */
#include <pthread.h>

#include "gen/real.h"
#include "hook_memory.h"
#include "memory.h"
#include "prim.h"

#define BLOCK_WIDTH_BYTES 64
#define BLOCK_ROWS 8
#define BITS_UNKNOWN 64 /* per element: as much as any of the video formats takes */

static struct {
  pthread_mutex_t lock;
  uint64_t bytes;
} small[VG_DEVICES_MAX] = {[0 ... VG_DEVICES_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* ---- size ---- */

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
  row = vg_charge_round(row / 8 + (row % 8 != 0), BLOCK_WIDTH_BYTES);
  uint64_t rows = extent->height > 1 ? vg_charge_round(extent->height, BLOCK_ROWS) : 1;
  if (__builtin_mul_overflow(row, rows, &area)) return UINT64_MAX;
  if (__builtin_mul_overflow(area, extent->depth ? extent->depth : 1, &bytes)) return UINT64_MAX;
  return bytes;
}

static uint64_t all_levels_bytes(struct extent extent, unsigned int levels, bool layered) {
  uint64_t bytes = 0;
  for (unsigned int i = 0; i < levels && i < 32; i++) {
    uint64_t level = level_bytes(&extent);
    if (__builtin_add_overflow(bytes, level, &bytes)) return UINT64_MAX;
    extent.width = extent.width > 1 ? extent.width / 2 : 1;
    extent.height = extent.height > 1 ? extent.height / 2 : extent.height;
    if (!layered) extent.depth = extent.depth > 1 ? extent.depth / 2 : extent.depth;
  }
  return bytes;
}

static uint64_t bytes_3d(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels) {
  if (!descriptor || descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
  struct extent extent = {descriptor->Width, descriptor->Height, descriptor->Depth,
                          element_bits(descriptor->Format, descriptor->NumChannels)};
  return all_levels_bytes(extent, levels, descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP));
}

/* ---- small ones ---- */

static int add_small(struct vg_device *device, uint64_t bytes) {
  size_t i = (size_t)(device - vg_session.devices);
  uint64_t granule = vg_charge_granule(device);
  pthread_mutex_lock(&small[i].lock);
  uint64_t more = vg_charge_round(small[i].bytes + bytes, granule) - vg_charge_round(small[i].bytes, granule);
  int result = more ? vg_memory_reserve(device, more) : 0;
  if (result == 0) small[i].bytes += bytes;
  pthread_mutex_unlock(&small[i].lock);
  return result;
}

void vg_array_small_gone(struct vg_device *device, uint64_t bytes) {
  size_t i = (size_t)(device - vg_session.devices);
  uint64_t granule = vg_charge_granule(device);
  pthread_mutex_lock(&small[i].lock);
  uint64_t less = vg_charge_round(small[i].bytes, granule) - vg_charge_round(small[i].bytes - bytes, granule);
  small[i].bytes -= bytes;
  pthread_mutex_unlock(&small[i].lock);
  if (less) vg_memory_release(device, less);
}

/* ---- reserve, commit, roll back ---- */

/* *ret_record stays NULL when nothing is to be accounted. */
static bool begin(uint64_t bytes, struct vg_record **ret_record) {
  CUcontext context;
  struct vg_device *device = bytes ? vg_context_current(&context) : NULL;
  *ret_record = NULL;
  if (!device) return true;
  struct vg_record *record = vg_record_new(VG_RECORD_ARRAY, device, context);
  if (!record) return false;
  record->size = bytes;
  bool large = bytes >= vg_charge_granule(device);
  if (large) record->bytes = vg_charge_round(bytes, vg_charge_granule(device));
  if (large ? vg_memory_reserve(device, record->bytes) : add_small(device, bytes)) {
    vg_record_free(record);
    return false;
  }
  *ret_record = record;
  return true;
}

static CUresult end(struct vg_record *record, CUresult result, uint64_t handle) {
  if (record && result == CUDA_SUCCESS) vg_table_put(record, handle);
  if (record && result != CUDA_SUCCESS) vg_charge_return(record);
  return result;
}

#define CREATE(bytes, call)                                                                                            \
  struct vg_record *record;                                                                                            \
  if (!begin(bytes, &record)) return CUDA_ERROR_OUT_OF_MEMORY;                                                         \
  CUresult result = call;                                                                                              \
  return end(record, result, result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*pHandle : 0)

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
  const CUDA_ARRAY_DESCRIPTOR *d = pAllocateArray;
  struct extent extent = {0};
  if (d) extent = (struct extent){d->Width, d->Height, 1, element_bits(d->Format, d->NumChannels)};
  CREATE(level_bytes(&extent), REAL(cuArrayCreate_v2)(pHandle, pAllocateArray));
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray) {
  const CUDA_ARRAY_DESCRIPTOR_v1 *d = pAllocateArray;
  struct extent extent = {0};
  if (d) extent = (struct extent){d->Width, d->Height, 1, element_bits(d->Format, d->NumChannels)};
  CREATE(level_bytes(&extent), REAL(cuArrayCreate)(pHandle, pAllocateArray));
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
  CREATE(bytes_3d(pAllocateArray, 1), REAL(cuArray3DCreate_v2)(pHandle, pAllocateArray));
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray) {
  const CUDA_ARRAY3D_DESCRIPTOR_v1 *d = pAllocateArray;
  CUDA_ARRAY3D_DESCRIPTOR wide = {0};
  if (d) {
    wide = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags};
  }
  CREATE(bytes_3d(&wide, 1), REAL(cuArray3DCreate)(pHandle, pAllocateArray));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  CREATE(bytes_3d(pMipmappedArrayDesc, numMipmapLevels),
         REAL(cuMipmappedArrayCreate)(pHandle, pMipmappedArrayDesc, numMipmapLevels));
}

static CUresult destroyed(struct vg_record *record, CUresult result) {
  if (record && result == CUDA_SUCCESS) vg_charge_return(record);
  if (record && result != CUDA_SUCCESS) vg_table_put(record, record->key);
  return result;
}

CUresult cuArrayDestroy(CUarray hArray) {
  struct vg_record *record = vg_table_take(VG_RECORD_ARRAY, (uint64_t)(uintptr_t)hArray);
  return destroyed(record, REAL(cuArrayDestroy)(hArray));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  struct vg_record *record = vg_table_take(VG_RECORD_ARRAY, (uint64_t)(uintptr_t)hMipmappedArray);
  return destroyed(record, REAL(cuMipmappedArrayDestroy)(hMipmappedArray));
}

void vg_array_forked_child(void) {
  for (int i = 0; i < VG_DEVICES_MAX; i++) {
    pthread_mutex_init(&small[i].lock, NULL);
    small[i].bytes = 0;
  }
}
