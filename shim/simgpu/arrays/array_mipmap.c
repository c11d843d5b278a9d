/*
 * array_mipmap.c - mipmapped arrays, and the arrays that are a part of another: levels and planes. Called by programs.
 */
#include "simgpu/arrays/array.h"
#include "simgpu/memory/external_memory.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"

SIM_PUBLIC CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret_handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                           unsigned levels) {
  struct sim_array *array;
  unsigned most = descriptor ? sim_levels_max(descriptor) : 1;
  levels = levels == 0 ? 1 : levels > most ? most : levels; /* clamped, as documented */
  CUresult result = sim_array_create(ret_handle ? descriptor : NULL, levels, SIM_MIPMAP_MAGIC, NULL, &array);
  if (result == CUDA_SUCCESS) *ret_handle = (CUmipmappedArray)array;
  return result;
}

SIM_PUBLIC CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  struct sim_array *array = sim_mipmap_find(handle);
  return array ? sim_array_destroy(array) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult part_of(struct sim_array *parent, unsigned index, bool plane, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                        uint64_t offset, CUarray *ret_handle) {
  sim_array_lock();
  struct sim_array *child = sim_array_child(parent, index, plane, descriptor, offset);
  sim_array_unlock();
  if (!child) return CUDA_ERROR_OUT_OF_MEMORY;
  *ret_handle = (CUarray)child;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuMipmappedArrayGetLevel(CUarray *ret_handle, CUmipmappedArray handle, unsigned level) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_array *array = sim_mipmap_find(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (!ret_handle || level >= array->levels) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR at = sim_level_descriptor(&array->descriptor, level);
  return part_of(array, level, false, &at, sim_level_offset(&array->descriptor, level), ret_handle);
}

SIM_PUBLIC CUresult cuArrayGetPlane(CUarray *ret_handle, CUarray handle, unsigned index) {
  struct sim_plane planes[SIM_ARRAY_PLANES_MAX];
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_array *array = sim_array_find(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  unsigned count = sim_format_planes(&array->descriptor, planes);
  if (!ret_handle || count < 2 || index >= count) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR plane = array->descriptor;
  plane.Width = (plane.Width + planes[index].width_shift) >> planes[index].width_shift;
  plane.Height = (plane.Height + planes[index].height_shift) >> planes[index].height_shift;
  plane.Format = planes[index].format;
  plane.NumChannels = planes[index].channels;
  return part_of(array, index, true, &plane, sim_plane_offset(&array->descriptor, index), ret_handle);
}

/* ---- what a mapping needs ---- */

static CUresult requirements(const struct sim_array *array, CUdevice device,
                             CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_requirements) {
  if (!array || !ret_requirements || !sim_device(device)) return CUDA_ERROR_INVALID_VALUE;
  if (!(array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) || array->parent) return CUDA_ERROR_INVALID_VALUE;
  *ret_requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array->bytes, .alignment = SIM_ARRAY_PAGE_BYTES};
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_requirements, CUarray handle,
                                                 CUdevice device) {
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? requirements(sim_array_find(handle), device, ret_requirements) : result;
}

SIM_PUBLIC CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_requirements,
                                                          CUmipmappedArray handle, CUdevice device) {
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? requirements(sim_mipmap_find(handle), device, ret_requirements) : result;
}

SIM_PUBLIC CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *ret_mipmap, CUexternalMemory handle,
                                                            const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc) {
  struct sim_context *context;
  struct sim_external_map *made;
  struct sim_array *array;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_mipmap || !desc || desc->arrayDesc.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
    return CUDA_ERROR_INVALID_VALUE;
  result = sim_descriptor_check(context, &desc->arrayDesc, true);
  if (result != CUDA_SUCCESS) return result;
  if (desc->numLevels == 0 || desc->numLevels > sim_levels_max(&desc->arrayDesc)) return CUDA_ERROR_INVALID_VALUE;
  result = sim_external_map(handle, desc->offset, sim_level_offset(&desc->arrayDesc, desc->numLevels), &made);
  if (result != CUDA_SUCCESS) return result;
  result = sim_array_create(&desc->arrayDesc, desc->numLevels, SIM_MIPMAP_MAGIC, made, &array);
  if (result == CUDA_SUCCESS)
    *ret_mipmap = (CUmipmappedArray)array;
  else
    sim_external_unmap(made);
  return result;
}
