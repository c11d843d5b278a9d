/*
 * texture_reference.c - texture references, which the driver keeps for old programs: what is set can be read back, no
 * kernel reads through them. Called by programs.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arrays/array.h"
#include "simgpu/base/slab.h"
#include "simgpu/memory/alloc_first.h"
#include "simgpu/process/process.h"

#define REFERENCE_MAGIC 0x54524546u
#define ANISOTROPY_MAX 16

struct reference {
  struct sim_object object;
  CUarray array;
  CUmipmappedArray mipmap;
  CUdeviceptr address;
  CUarray_format format;
  int channels;
  CUaddress_mode address_modes[3];
  CUfilter_mode filter, mipmap_filter;
  float bias, clamp_min, clamp_max;
  float border[4];
  unsigned flags, anisotropy;
};

static struct sim_slab slab = SIM_SLAB(sizeof(struct reference), 1u << 12);

static CUresult find(CUtexref handle, bool valid, struct reference **ret_reference) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  *ret_reference = sim_slab_find(&slab, handle, REFERENCE_MAGIC);
  return *ret_reference && valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuTexRefCreate(CUtexref *ret_handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct reference *reference = ret_handle ? sim_slab_get(&slab, REFERENCE_MAGIC) : NULL;
  if (!reference) return ret_handle ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  reference->format = CU_AD_FORMAT_FLOAT;
  reference->channels = 1;
  *ret_handle = (CUtexref)reference;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTexRefDestroy(CUtexref handle) {
  struct reference *reference;
  CUresult result = find(handle, true, &reference);
  if (result == CUDA_SUCCESS) sim_slab_put(&slab, reference);
  return result;
}

/* ---- what it reads ---- */

static void bind(struct reference *reference, CUarray array, CUmipmappedArray mipmap, CUdeviceptr address) {
  reference->array = array;
  reference->mipmap = mipmap;
  reference->address = address;
}

static CUresult bind_array(CUtexref handle, CUarray array, CUmipmappedArray mipmap, const struct sim_array *found,
                           unsigned flags) {
  struct reference *reference;
  CUresult result = find(handle, found && flags == CU_TRSA_OVERRIDE_FORMAT, &reference);
  if (result != CUDA_SUCCESS) return result;
  bind(reference, array, mipmap, 0);
  reference->format = found->descriptor.Format;
  reference->channels = (int)found->descriptor.NumChannels;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTexRefSetArray(CUtexref handle, CUarray array, unsigned flags) {
  return bind_array(handle, array, NULL, sim_array_find(array), flags);
}

SIM_PUBLIC CUresult cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray mipmap, unsigned flags) {
  return bind_array(handle, NULL, mipmap, sim_mipmap_find(mipmap), flags);
}

/* Addresses that are not aligned are rounded down; the program adds the rest itself where it can say so. */
SIM_PUBLIC CUresult cuTexRefSetAddress_v2(size_t *ret_offset, CUtexref handle, CUdeviceptr address, size_t bytes) {
  struct reference *reference;
  struct sim_allocation allocation;
  CUresult result = find(handle, sim_memory_covers(address, bytes, &allocation), &reference);
  if (result != CUDA_SUCCESS) return result;
  size_t offset = address % SIM_SMALL_ALIGN_BYTES;
  if (offset && !ret_offset) return CUDA_ERROR_INVALID_VALUE;
  if (ret_offset) *ret_offset = offset;
  bind(reference, NULL, NULL, address - offset);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *descriptor,
                                            CUdeviceptr address, size_t pitch) {
  struct reference *reference;
  struct sim_allocation allocation;
  bool valid = descriptor && descriptor->Width && descriptor->Height && address % SIM_SMALL_ALIGN_BYTES == 0 &&
               sim_memory_covers(address, pitch * (descriptor->Height - 1) + 1, &allocation);
  CUresult result = find(handle, valid, &reference);
  if (result != CUDA_SUCCESS) return result;
  bind(reference, NULL, NULL, address);
  reference->format = descriptor->Format;
  reference->channels = (int)descriptor->NumChannels;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTexRefSetAddress2D_v2(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *descriptor,
                                            CUdeviceptr address, size_t pitch) {
  return cuTexRefSetAddress2D_v3(handle, descriptor, address, pitch);
}

/* ---- one value each: SET(name, type, what is valid, what is kept), GET(name, type, what is bound, what is read) ----
 */

#define SET(name, type, valid, keep)                                                                                   \
  SIM_PUBLIC CUresult cuTexRefSet##name(CUtexref handle, type value) {                                                 \
    struct reference *reference;                                                                                       \
    CUresult result = find(handle, valid, &reference);                                                                 \
    if (result == CUDA_SUCCESS) reference->keep = value;                                                               \
    return result;                                                                                                     \
  }
#define GET(name, type, bound, value)                                                                                  \
  SIM_PUBLIC CUresult cuTexRefGet##name(type *ret_value, CUtexref handle) {                                            \
    struct reference *reference;                                                                                       \
    CUresult result = find(handle, ret_value != NULL, &reference);                                                     \
    if (result != CUDA_SUCCESS) return result;                                                                         \
    if (!(bound)) return CUDA_ERROR_INVALID_VALUE;                                                                     \
    *ret_value = value;                                                                                                \
    return CUDA_SUCCESS;                                                                                               \
  }

#define FLAGS_KNOWN                                                                                                    \
  (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION)

SET(FilterMode, CUfilter_mode, (unsigned)value <= CU_TR_FILTER_MODE_LINEAR, filter)
SET(MipmapFilterMode, CUfilter_mode, (unsigned)value <= CU_TR_FILTER_MODE_LINEAR, mipmap_filter)
SET(MipmapLevelBias, float, true, bias)
SET(MaxAnisotropy, unsigned, value <= ANISOTROPY_MAX, anisotropy)
SET(Flags, unsigned, !(value & ~FLAGS_KNOWN), flags)
GET(FilterMode, CUfilter_mode, true, reference->filter)
GET(MipmapFilterMode, CUfilter_mode, true, reference->mipmap_filter)
GET(MipmapLevelBias, float, true, reference->bias)
GET(MaxAnisotropy, int, true, (int)reference->anisotropy)
GET(Flags, unsigned, true, reference->flags)
GET(Array, CUarray, reference->array, reference->array)
GET(MipmappedArray, CUmipmappedArray, reference->mipmap, reference->mipmap)
GET(Address_v2, CUdeviceptr, reference->address, reference->address)

SIM_PUBLIC CUresult cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels) {
  struct reference *reference;
  CUDA_ARRAY3D_DESCRIPTOR element = {.Width = 1, .Format = format, .NumChannels = (unsigned)channels};
  struct sim_layout layout;
  CUresult result = find(handle, sim_layout_of(&element, &layout), &reference);
  if (result != CUDA_SUCCESS) return result;
  reference->format = format;
  reference->channels = channels;
  return CUDA_SUCCESS;
}

/* GET_PAIR(name, type, what is read, type, what is read) */
#define GET_PAIR(name, type, value, other_type, other)                                                                 \
  SIM_PUBLIC CUresult cuTexRefGet##name(type *ret_value, other_type *ret_other, CUtexref handle) {                     \
    struct reference *reference;                                                                                       \
    CUresult result = find(handle, ret_value && ret_other, &reference);                                                \
    if (result != CUDA_SUCCESS) return result;                                                                         \
    *ret_value = reference->value;                                                                                     \
    *ret_other = reference->other;                                                                                     \
    return CUDA_SUCCESS;                                                                                               \
  }

GET_PAIR(Format, CUarray_format, format, int, channels)
GET_PAIR(MipmapLevelClamp, float, clamp_min, float, clamp_max)

SIM_PUBLIC CUresult cuTexRefSetAddressMode(CUtexref handle, int dimension, CUaddress_mode mode) {
  struct reference *reference;
  bool valid = dimension >= 0 && dimension < 3 && (unsigned)mode <= CU_TR_ADDRESS_MODE_BORDER;
  CUresult result = find(handle, valid, &reference);
  if (result == CUDA_SUCCESS) reference->address_modes[dimension] = mode;
  return result;
}

SIM_PUBLIC CUresult cuTexRefGetAddressMode(CUaddress_mode *ret_mode, CUtexref handle, int dimension) {
  struct reference *reference;
  CUresult result = find(handle, ret_mode && dimension >= 0 && dimension < 3, &reference);
  if (result == CUDA_SUCCESS) *ret_mode = reference->address_modes[dimension];
  return result;
}

SIM_PUBLIC CUresult cuTexRefSetMipmapLevelClamp(CUtexref handle, float least, float most) {
  struct reference *reference;
  CUresult result = find(handle, true, &reference);
  if (result != CUDA_SUCCESS) return result;
  reference->clamp_min = least;
  reference->clamp_max = most;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTexRefSetBorderColor(CUtexref handle, float *color) {
  struct reference *reference;
  CUresult result = find(handle, color != NULL, &reference);
  for (int i = 0; result == CUDA_SUCCESS && i < 4; i++) reference->border[i] = color[i];
  return result;
}

SIM_PUBLIC CUresult cuTexRefGetBorderColor(float *ret_color, CUtexref handle) {
  struct reference *reference;
  CUresult result = find(handle, ret_color != NULL, &reference);
  for (int i = 0; result == CUDA_SUCCESS && i < 4; i++) ret_color[i] = reference->border[i];
  return result;
}

/* ---- the first interface ---- */

SIM_PUBLIC CUresult cuTexRefGetAddress(CUdeviceptr_v1 *ret_address, CUtexref reference) {
  CUdeviceptr address = 0;
  return sim_first_address(cuTexRefGetAddress_v2(&address, reference), &address, ret_address);
}

SIM_PUBLIC CUresult cuTexRefSetAddress(unsigned *ret_offset, CUtexref reference, CUdeviceptr_v1 address,
                                       unsigned bytes) {
  size_t offset = 0;
  CUresult result = cuTexRefSetAddress_v2(ret_offset ? &offset : NULL, reference, address, bytes);
  if (result == CUDA_SUCCESS && ret_offset) *ret_offset = (unsigned)offset;
  return result;
}

SIM_PUBLIC CUresult cuTexRefSetAddress2D(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR_v1 *first,
                                         CUdeviceptr_v1 address, unsigned pitch) {
  CUDA_ARRAY_DESCRIPTOR descriptor = {0};
  if (first) descriptor = (CUDA_ARRAY_DESCRIPTOR){first->Width, first->Height, first->Format, first->NumChannels};
  return cuTexRefSetAddress2D_v3(reference, first ? &descriptor : NULL, address, pitch);
}

/* ---- surface references: no module has one (modules/module.c) ---- */

SIM_PUBLIC CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned flags) {
  (void)reference, (void)array, (void)flags;
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_PUBLIC CUresult cuSurfRefGetArray(CUarray *ret_array, CUsurfref reference) {
  (void)ret_array, (void)reference;
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}
