/*
 * texture.c - texture and surface objects: descriptors that are checked and kept, no kernel reads through them. Called
 * by programs. Objects do not end with the arrays that they name.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arrays/array.h"
#include "simgpu/base/slab.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

#define TEXTURE_MAGIC 0x54455854u
#define SURFACE_MAGIC 0x53555246u
#define ANISOTROPY_MAX 16

struct view {
  struct sim_object object;
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  bool has_view;
};

static struct sim_slab slab = SIM_SLAB(sizeof(struct view), 1u << 18);

static struct view *find(uint64_t handle, uint32_t magic) {
  return sim_slab_find(&slab, (const void *)handle, magic);
}

/* ---- what is taken ---- */

static int limit(const struct sim_context *context, CUdevice_attribute attribute) {
  int most = 0;
  return cuDeviceGetAttribute(&most, attribute, context->ordinal) == CUDA_SUCCESS ? most : 0;
}

/* Bytes of an element of linear memory; 0: no such format. */
static size_t element_bytes(CUarray_format format, unsigned channels) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 1, .Format = format, .NumChannels = channels};
  struct sim_layout layout;
  return sim_layout_of(&descriptor, &layout) ? layout.row_bytes : 0;
}

static CUresult check_linear(const struct sim_context *context, const CUDA_RESOURCE_DESC *resource) {
  struct sim_allocation allocation;
  CUdeviceptr base = resource->res.linear.devPtr;
  size_t element = element_bytes(resource->res.linear.format, resource->res.linear.numChannels);
  size_t bytes = resource->res.linear.sizeInBytes;
  size_t most = (size_t)limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
  if (!element || bytes < element || bytes / element > most) return CUDA_ERROR_INVALID_VALUE;
  if (base % (size_t)limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)) return CUDA_ERROR_INVALID_VALUE;
  return sim_memory_covers(base, bytes, &allocation) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_pitch(const struct sim_context *context, const CUDA_RESOURCE_DESC *resource) {
  struct sim_allocation allocation;
  CUdeviceptr base = resource->res.pitch2D.devPtr;
  size_t element = element_bytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
  size_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
  size_t pitch = resource->res.pitch2D.pitchInBytes;
  if (!element || !width || !height || pitch < width * element) return CUDA_ERROR_INVALID_VALUE;
  if (width > (size_t)limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
      height > (size_t)limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
      pitch > (size_t)limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH))
    return CUDA_ERROR_INVALID_VALUE;
  if (base % (size_t)limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) ||
      pitch % (size_t)limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT))
    return CUDA_ERROR_INVALID_VALUE;
  bool covered = sim_memory_covers(base, pitch * (height - 1) + width * element, &allocation);
  return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_resource(const struct sim_context *context, const CUDA_RESOURCE_DESC *resource) {
  if (!resource || resource->flags) return CUDA_ERROR_INVALID_VALUE;
  switch (resource->resType) {
  case CU_RESOURCE_TYPE_ARRAY:
    return sim_array_find(resource->res.array.hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
    return sim_mipmap_find(resource->res.mipmap.hMipmappedArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_RESOURCE_TYPE_LINEAR:
    return check_linear(context, resource);
  case CU_RESOURCE_TYPE_PITCH2D:
    return check_pitch(context, resource);
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

#define FLAGS_KNOWN                                                                                                    \
  (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |  \
   CU_TRSF_SEAMLESS_CUBEMAP)

static CUresult check_texture(const CUDA_TEXTURE_DESC *texture) {
  if (!texture || texture->flags & ~FLAGS_KNOWN || texture->maxAnisotropy > ANISOTROPY_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; i++)
    if ((unsigned)texture->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
  bool filters = (unsigned)texture->filterMode <= CU_TR_FILTER_MODE_LINEAR &&
                 (unsigned)texture->mipmapFilterMode <= CU_TR_FILTER_MODE_LINEAR;
  return filters ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_view(const CUDA_RESOURCE_DESC *resource, const CUDA_RESOURCE_VIEW_DESC *view) {
  bool of_array = resource->resType == CU_RESOURCE_TYPE_ARRAY || resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (!of_array || (unsigned)view->format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) return CUDA_ERROR_INVALID_VALUE;
  unsigned levels =
      resource->resType == CU_RESOURCE_TYPE_ARRAY ? 1 : sim_mipmap_find(resource->res.mipmap.hMipmappedArray)->levels;
  bool ordered = view->firstMipmapLevel <= view->lastMipmapLevel && view->firstLayer <= view->lastLayer;
  return ordered && view->lastMipmapLevel < levels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- texture objects ---- */

SIM_PUBLIC CUresult cuTexObjectCreate(CUtexObject *ret_handle, const CUDA_RESOURCE_DESC *resource,
                                      const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle) return CUDA_ERROR_INVALID_VALUE;
  result = check_resource(context, resource);
  if (result == CUDA_SUCCESS) result = check_texture(texture);
  if (result == CUDA_SUCCESS && view) result = check_view(resource, view);
  if (result != CUDA_SUCCESS) return result;
  struct view *made = sim_slab_get(&slab, TEXTURE_MAGIC);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->resource = *resource;
  made->texture = *texture;
  made->has_view = view != NULL;
  if (view) made->view = *view;
  *ret_handle = (CUtexObject)(uintptr_t)made;
  return CUDA_SUCCESS;
}

static CUresult destroy(uint64_t handle, uint32_t magic) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct view *view = find(handle, magic);
  if (!view) return CUDA_ERROR_INVALID_VALUE;
  sim_slab_put(&slab, view);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuTexObjectDestroy(CUtexObject handle) {
  return destroy(handle, TEXTURE_MAGIC);
}

static CUresult look(uint64_t handle, uint32_t magic, const void *ret_value, const struct view **ret_view) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  *ret_view = find(handle, magic);
  return *ret_view && ret_value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret_resource, CUtexObject handle) {
  const struct view *view;
  CUresult result = look(handle, TEXTURE_MAGIC, ret_resource, &view);
  if (result == CUDA_SUCCESS) *ret_resource = view->resource;
  return result;
}

SIM_PUBLIC CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *ret_texture, CUtexObject handle) {
  const struct view *view;
  CUresult result = look(handle, TEXTURE_MAGIC, ret_texture, &view);
  if (result == CUDA_SUCCESS) *ret_texture = view->texture;
  return result;
}

SIM_PUBLIC CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *ret_view, CUtexObject handle) {
  const struct view *view;
  CUresult result = look(handle, TEXTURE_MAGIC, ret_view, &view);
  if (result == CUDA_SUCCESS && !view->has_view) result = CUDA_ERROR_INVALID_VALUE; /* none was given */
  if (result == CUDA_SUCCESS) *ret_view = view->view;
  return result;
}

/* ---- surface objects ---- */

SIM_PUBLIC CUresult cuSurfObjectCreate(CUsurfObject *ret_handle, const CUDA_RESOURCE_DESC *resource) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || !resource || resource->flags || resource->resType != CU_RESOURCE_TYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  const struct sim_array *array = sim_array_find(resource->res.array.hArray);
  if (!array || !(array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST)) return CUDA_ERROR_INVALID_VALUE;
  struct view *made = sim_slab_get(&slab, SURFACE_MAGIC);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->resource = *resource;
  *ret_handle = (CUsurfObject)(uintptr_t)made;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuSurfObjectDestroy(CUsurfObject handle) {
  return destroy(handle, SURFACE_MAGIC);
}

SIM_PUBLIC CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret_resource, CUsurfObject handle) {
  const struct view *view;
  CUresult result = look(handle, SURFACE_MAGIC, ret_resource, &view);
  if (result == CUDA_SUCCESS) *ret_resource = view->resource;
  return result;
}

/* The device's limit is one of elements, whatever they are. */
SIM_PUBLIC CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *ret_elements, CUarray_format format, unsigned channels,
                                                       CUdevice ordinal) {
  CUDA_ARRAY3D_DESCRIPTOR element = {.Width = 1, .Format = format, .NumChannels = channels};
  struct sim_layout layout;
  int width;
  CUresult result = cuDeviceGetAttribute(&width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, ordinal);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_elements || !sim_layout_of(&element, &layout)) return CUDA_ERROR_INVALID_VALUE;
  *ret_elements = (size_t)width;
  return CUDA_SUCCESS;
}
