/* device_properties.c - see device_properties.h. */
#include "simcuda/cudart/device_properties.h"
#include <string.h>

/* An attribute that the driver does not know stays 0. */
static void fill_member(const struct sc_driver *driver, int device, const struct sc_member *member, char *ret_member) {
  int value;
  if (driver->cuDeviceGetAttribute(&value, member->attribute, device) != CUDA_SUCCESS) return;
  size_t wide = (size_t)value;
  if (member->size_bytes == sizeof wide)
    memcpy(ret_member, &wide, sizeof wide);
  else
    memcpy(ret_member, &value, sizeof value);
}

cudaError_t sc_read_properties(void *ret_properties, size_t bytes, int device, const struct sc_member *members,
                               size_t count) {
  const struct sc_driver *driver;
  struct sc_properties_head head = {0};
  cudaError_t error = sc_start(&driver);
  if (error == cudaSuccess && ret_properties == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDeviceGetName(head.name, sizeof head.name, device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDeviceGetUuid_v2(&head.uuid, device);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuDeviceTotalMem_v2(&head.memory_bytes, device);
  if (error != cudaSuccess) return sc_end(error);
  memset(ret_properties, 0, bytes);
  memcpy(ret_properties, &head, sizeof head);
  for (size_t i = 0; i < count; i++)
    fill_member(driver, device, &members[i], (char *)ret_properties + members[i].offset_bytes);
  return cudaSuccess;
}
