/*
 * pointer.c - what is known of a pointer. Programs ask it of any address, their own malloc'ed ones included: then the
 * single form refuses and the form for several attributes answers zeroes, as the driver does.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <string.h>

/* What this process calls the device of an allocation; -2 for none, as the driver says of plain host memory. */
static int ordinal_of(const struct sim_allocation *allocation) {
  if (allocation->context) return allocation->context->ordinal;
  for (int i = 0; allocation->mapped && i < sim_device_count(); i++)
    if (sim_device(i)->index == allocation->device) return i;
  return -2;
}

/* The value of one attribute; its size is returned, 0: not an attribute that is known here. */
static size_t attribute_of(const struct sim_allocation *allocation, CUpointer_attribute attribute, CUdeviceptr address,
                           uint64_t *ret_value) {
  bool device = allocation->kind == CU_MEMORYTYPE_DEVICE;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    return *ret_value = (uint64_t)allocation->context, sizeof(CUcontext);
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    return *ret_value = allocation->kind, sizeof(unsigned);
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    return *ret_value = address, sizeof(CUdeviceptr);
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    return *ret_value = device && !allocation->managed ? 0 : address, sizeof(void *);
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    return *ret_value = 0, sizeof(unsigned);
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    return *ret_value = allocation->id, sizeof(unsigned long long);
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    return *ret_value = allocation->managed, sizeof(unsigned);
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    return *ret_value = (uint64_t)ordinal_of(allocation), sizeof(int);
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    return *ret_value = allocation->base, sizeof(CUdeviceptr);
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    return *ret_value = allocation->bytes, sizeof(size_t);
  case CU_POINTER_ATTRIBUTE_MAPPED:
    return *ret_value = 1, sizeof(unsigned);
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
  case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    return *ret_value = 0, sizeof(unsigned long long);
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    return *ret_value = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sizeof(unsigned);
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    return *ret_value = (uint64_t)allocation->pool, sizeof(CUmemoryPool);
  default:
    return 0;
  }
}

static size_t size_shown(CUpointer_attribute attribute, size_t size) {
  bool is_bool = attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
                 attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE;
  return is_bool ? sizeof(unsigned) : size;
}

SIM_PUBLIC CUresult cuPointerGetAttribute(void *ret_data, CUpointer_attribute attribute, CUdeviceptr address) {
  struct sim_allocation allocation;
  uint64_t value;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_data || !sim_memory_find(address, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  size_t size = attribute_of(&allocation, attribute, address, &value);
  if (size == 0) return CUDA_ERROR_NOT_SUPPORTED;
  memcpy(ret_data, &value, size_shown(attribute, size));
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **ret_data,
                                           CUdeviceptr address) {
  struct sim_allocation allocation;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (count > 0 && (!attributes || !ret_data)) return CUDA_ERROR_INVALID_VALUE;
  bool known = sim_memory_find(address, &allocation);
  if (!known) memset(&allocation, 0, sizeof allocation);
  for (unsigned i = 0; i < count; i++) {
    uint64_t value;
    size_t size = attribute_of(&allocation, attributes[i], known ? address : 0, &value);
    if (size == 0 || !ret_data[i]) return CUDA_ERROR_INVALID_VALUE;
    if (!known) value = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)-2 : 0;
    memcpy(ret_data[i], &value, size_shown(attributes[i], size));
  }
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  struct sim_allocation allocation;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !sim_memory_find(address, &allocation))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS; /* copies of such memory wait already */
}
