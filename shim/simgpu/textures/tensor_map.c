/*
 * tensor_map.c - descriptors for the tensor memory accelerator: what a program hands over is checked as documented and
 * written down; no kernel of the simulated device reads one. Called by programs. Those of cuTensorMapEncodeIm2colWide
 * are for newer devices (compute capability 10.0) than the one that is simulated.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <string.h>

#define RANK_MAX 5
#define DIM_MAX (1ull << 32)
#define STRIDE_LIMIT (1ull << 40)
#define BOX_MAX 256u
#define COLUMN_MAX 1024u
#define ELEMENT_STRIDE_MAX 8u
#define MAP_MAGIC 0x544d4150u

/* What all types are made from. */
struct tensor {
  CUtensorMapDataType type;
  unsigned rank;
  const void *address;
  const cuuint64_t *dims, *strides; /* strides: one fewer */
  const cuuint32_t *element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
  unsigned inner; /* elements of a box along the innermost dimension */
};

struct written { /* in the descriptor */
  uint32_t magic;
  uint32_t alignment; /* of the address */
  uint64_t address;
  uint8_t type, rank, interleave, swizzle, promotion, fill, kind, unused;
  uint32_t inner;
  uint64_t dims[RANK_MAX];
};
_Static_assert(sizeof(struct written) <= sizeof(CUtensorMap), "a descriptor has 128 bytes");

static bool is_packed(CUtensorMapDataType type) { /* with gaps in shared memory */
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static unsigned element_bits(CUtensorMapDataType type) {
  switch (type) {
  case CU_TENSOR_MAP_DATA_TYPE_UINT8:
    return 8;
  case CU_TENSOR_MAP_DATA_TYPE_UINT16:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
  case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    return 16;
  case CU_TENSOR_MAP_DATA_TYPE_UINT64:
  case CU_TENSOR_MAP_DATA_TYPE_INT64:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
    return 64;
  case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
  case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
    return 4;
  case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
    return 6;
  default:
    return 32;
  }
}

static bool is_floating(CUtensorMapDataType type) {
  return (type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
}

static unsigned alignment_of(const struct tensor *tensor) {
  return tensor->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_packed(tensor->type) ? 32 : 16;
}

static bool enums_valid(const struct tensor *tensor) {
  return (unsigned)tensor->type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B &&
         (unsigned)tensor->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
         (unsigned)tensor->swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
         (unsigned)tensor->promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
         (unsigned)tensor->fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
}

static bool shape_valid(const struct tensor *tensor) {
  unsigned alignment = alignment_of(tensor);
  unsigned multiple = is_packed(tensor->type) ? 128 : tensor->type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B ? 2 : 1;
  if (!tensor->dims || !tensor->element_strides || (tensor->rank > 1 && !tensor->strides)) return false;
  if (!tensor->address || (uintptr_t)tensor->address % alignment || tensor->dims[0] % multiple) return false;
  for (unsigned i = 0; i < tensor->rank; i++) {
    bool ignored = i == 0 && tensor->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
    if (tensor->dims[i] == 0 || tensor->dims[i] > DIM_MAX) return false;
    if (i > 0 && (tensor->strides[i - 1] % alignment || tensor->strides[i - 1] >= STRIDE_LIMIT)) return false;
    if (!ignored && (tensor->element_strides[i] == 0 || tensor->element_strides[i] > ELEMENT_STRIDE_MAX)) return false;
  }
  return true;
}

static unsigned swizzle_bytes(CUtensorMapSwizzle swizzle) {
  return swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 128;
}

static bool swizzle_valid(const struct tensor *tensor) {
  CUtensorMapSwizzle swizzle = tensor->swizzle;
  bool wide = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
              swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B;
  bool stored = swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B && tensor->type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
  if (is_packed(tensor->type) && !wide && !stored) return false;
  if (tensor->interleave == CU_TENSOR_MAP_INTERLEAVE_32B) return swizzle == CU_TENSOR_MAP_SWIZZLE_32B;
  if (tensor->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_NONE) return true;
  return (uint64_t)tensor->inner * element_bits(tensor->type) <= 8ull * swizzle_bytes(swizzle) ||
         is_packed(tensor->type);
}

static CUresult encode(CUtensorMap *map, const struct tensor *tensor, bool valid, uint8_t kind) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!map || (uintptr_t)map % 64 || !valid || tensor->rank == 0 || tensor->rank > RANK_MAX || !enums_valid(tensor) ||
      !shape_valid(tensor) || !swizzle_valid(tensor))
    return CUDA_ERROR_INVALID_VALUE;
  if (tensor->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE &&
      (tensor->rank < 3 || tensor->type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B))
    return CUDA_ERROR_INVALID_VALUE;
  if (tensor->fill && !is_floating(tensor->type)) return CUDA_ERROR_INVALID_VALUE;
  struct written written = {.magic = MAP_MAGIC,
                            .alignment = alignment_of(tensor),
                            .address = (uintptr_t)tensor->address,
                            .type = (uint8_t)tensor->type,
                            .rank = (uint8_t)tensor->rank,
                            .interleave = (uint8_t)tensor->interleave,
                            .swizzle = (uint8_t)tensor->swizzle,
                            .promotion = (uint8_t)tensor->promotion,
                            .fill = (uint8_t)tensor->fill,
                            .kind = kind,
                            .inner = tensor->inner};
  memcpy(written.dims, tensor->dims, tensor->rank * sizeof *tensor->dims);
  memset(map, 0, sizeof *map);
  memcpy(map, &written, sizeof written);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                           const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                           const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                           CUtensorMapFloatOOBfill fill) {
  struct tensor tensor = {type,       rank,    address,   dims, strides,         element_strides,
                          interleave, swizzle, promotion, fill, box ? box[0] : 0};
  bool valid = box && rank <= RANK_MAX;
  for (unsigned i = 0; valid && i < rank; i++) valid = box[i] > 0 && box[i] <= BOX_MAX;
  if (valid && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) valid = box[0] * element_bits(type) % (16 * 8) == 0;
  if (valid && is_packed(type)) valid = box[0] == 128;
  return encode(map, &tensor, valid, 1);
}

/* The corners of one dimension: bounds that shrink with their number, and something between them. */
static bool corners_valid(const struct tensor *tensor, const int *lower, const int *upper) {
  static const int reach[] = {32768, 128, 16};
  if (tensor->rank < 3 || tensor->rank > RANK_MAX || !lower || !upper || !tensor->dims) return false;
  int most = reach[tensor->rank - 3];
  for (unsigned i = 0; i < tensor->rank - 2; i++) {
    int64_t size = (int64_t)tensor->dims[tensor->rank - 2 - i]; /* corners come as D, H, W; dimensions as C, W, H, D */
    if (lower[i] < -most || lower[i] >= most || upper[i] < -most || upper[i] >= most) return false;
    if (size + upper[i] - lower[i] <= 0) return false;
  }
  return true;
}

SIM_PUBLIC CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                            const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                            const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                            const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                            CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                            CUtensorMapFloatOOBfill fill) {
  struct tensor tensor = {type,       rank,    address,   dims, strides, element_strides,
                          interleave, swizzle, promotion, fill, channels};
  bool valid = channels > 0 && channels <= BOX_MAX && pixels > 0 && pixels <= COLUMN_MAX &&
               (!is_packed(type) || channels == 128) && corners_valid(&tensor, lower, upper);
  return encode(map, &tensor, valid, 2);
}

SIM_PUBLIC CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
  struct sim_context *context;
  struct written written;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!map || (uintptr_t)map % 64) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&written, map, sizeof written);
  if (written.magic != MAP_MAGIC || !address || (uintptr_t)address % written.alignment) return CUDA_ERROR_INVALID_VALUE;
  written.address = (uintptr_t)address;
  memcpy(map, &written, sizeof written);
  return CUDA_SUCCESS;
}
