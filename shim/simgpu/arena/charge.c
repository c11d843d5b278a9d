/*
 * charge.c - what the server is charged for device memory, and maps that are charged. Called by all files that hand
 * device memory out.
 */
#include "simgpu/arena/charge.h"
#include "simgpu/arena/map.h"
#include "simgpu/arena/share.h"
#include "simgpu/process/process.h"
#include <errno.h>

CUresult sim_memory_charge(int device, uint64_t bytes) {
  int rc = sim_link_request(SIM_REQUEST_ALLOC, device, 0, bytes);
  return rc == 0 ? CUDA_SUCCESS : rc == -EPIPE ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_memory_refund(int device, uint64_t bytes) {
  sim_link_request(SIM_REQUEST_FREE, device, 0, bytes);
}

static CUresult map_charged(int device, uint64_t bytes, char *(*map)(uint64_t), char **ret_map) {
  CUresult result = sim_memory_charge(device, bytes);
  if (result != CUDA_SUCCESS) return result;
  *ret_map = map(bytes);
  if (*ret_map) return CUDA_SUCCESS;
  sim_memory_refund(device, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_map_charged(int device, uint64_t bytes, char **ret_map) {
  return map_charged(device, bytes, sim_map_device, ret_map);
}

CUresult sim_map_charged_low(int device, uint64_t bytes, char **ret_map) {
  return map_charged(device, bytes, sim_map_device_low, ret_map);
}

static CUresult request_managed(enum sim_request_kind kind, int device, const void *map, uint64_t bytes) {
  struct sim_request request = {
      .kind = kind, .device = (uint32_t)device, .bytes = bytes, .share.tag = (uint64_t)(uintptr_t)map};
  struct sim_reply reply;
  int rc = sim_link_exchange(&request, -1, &reply, NULL);
  return rc == 0 ? CUDA_SUCCESS : rc == -EPIPE ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_map_managed(int device, uint64_t bytes, char **ret_map) {
  char *map = sim_map_device(bytes);
  if (!map) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = request_managed(SIM_REQUEST_MANAGED_ALLOC, device, map, bytes);
  if (result == CUDA_SUCCESS)
    *ret_map = map;
  else
    sim_unmap_device(map, bytes);
  return result;
}

void sim_unmap_managed(int device, void *map, uint64_t bytes) {
  request_managed(SIM_REQUEST_MANAGED_FREE, device, map, bytes); /* before another thread may be given the address */
  sim_unmap_device(map, bytes);
}

/* What is shared stays where it is until its last holder has let go: then this address is never used again. */
void sim_unmap_charged(int device, void *map, uint64_t bytes) {
  if (sim_share_leave(map, bytes)) return;
  sim_unmap_device(map, bytes);
  sim_memory_refund(device, bytes);
}
