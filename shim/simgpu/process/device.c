/*
 * device.c - which devices this process sees, and what they say of themselves. CUDA_VISIBLE_DEVICES as CUDA reads it:
 * indices or UUID prefixes, the first entry that names no device (or one twice) ends the list, empty = none. Of MIG
 * instances a process sees one, and then nothing else; a GPU in MIG mode stands for its first one.
 */
#define _GNU_SOURCE
#include "simgpu/process/process.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct sim_device devices[SIM_DEVICES_MAX];
static int device_count;

int sim_device_count(void) {
  return device_count;
}

struct sim_device *sim_device(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : NULL;
}

const char *sim_model_path(void) {
  return sim_link.page->model;
}

void sim_device_memory(int index, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes) {
  const struct sim_page_device *device = &sim_link.page->devices[index];
  *ret_total_bytes = device->memory_bytes;
  *ret_free_bytes = device->memory_bytes - VG_LOAD(&device->used_bytes);
  if (VG_LOAD(&sim_link.page->limit_count) == 0) return;
  struct sim_request request = {.kind = SIM_REQUEST_LIMITS_OWN, .device = (uint32_t)index};
  struct sim_reply reply;
  if (sim_link_exchange(&request, -1, &reply, NULL) < 0 || reply.limits.hard >= *ret_total_bytes) return;
  uint64_t left = reply.limits.used < reply.limits.hard ? reply.limits.hard - reply.limits.used : 0;
  *ret_total_bytes = reply.limits.hard;
  if (left < *ret_free_bytes) *ret_free_bytes = left;
}

static bool is_instance(int index) {
  return sim_link.page->devices[index].parent != 0;
}

/* What a program gets when it asks for this device: of a GPU with instances the first of them. */
static int usable(int index) {
  for (uint32_t i = 0; i < sim_link.page->device_count; i++)
    if (sim_link.page->devices[i].parent == (uint32_t)index + 1) return (int)i;
  return index;
}

static void uuid_text(const struct sim_page_device *device, char ret_text[48]) {
  char *text = ret_text + sprintf(ret_text, device->parent ? "MIG-" : "GPU-");
  for (int i = 0; i < 16; i++)
    text += sprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", device->uuid[i]);
}

/* The index that an entry of CUDA_VISIBLE_DEVICES names, or -1. A UUID may be cut short as long as it names one. */
static int entry_index(const char *entry, size_t length) {
  int found = -1;
  if (length >= 4 && (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0)) {
    for (uint32_t i = 0; i < sim_link.page->device_count; i++) {
      char text[48];
      uuid_text(&sim_link.page->devices[i], text);
      if (length > strlen(text) || strncasecmp(entry, text, length) != 0) continue;
      if (found >= 0) return -1;
      found = (int)i;
    }
    return found;
  }
  char *end; /* as PyTorch has found that the driver does: +1, -0 and 1gpu are numbers */
  long index = length ? strtol(entry, &end, 10) : -1;
  if (index < 0 || end == entry || index >= (long)sim_link.page->device_count) return -1;
  return is_instance((int)index) ? -1 : (int)index; /* instances have no index */
}

static void device_add(int index) {
  const struct sim_page_device *shown = &sim_link.page->devices[index];
  struct sim_device *device = &devices[device_count++];
  memset(device, 0, sizeof *device);
  device->index = index;
  snprintf(device->name, sizeof device->name, "%s", shown->name);
  memcpy(device->uuid.bytes, shown->uuid, sizeof shown->uuid);
  device->memory_bytes = shown->memory_bytes;
  device->sm_count = (int)shown->sm_count;
  device->compute_major = (int)shown->compute_major;
  device->compute_minor = (int)shown->compute_minor;
}

/* All GPUs that are not in MIG mode; where there are none, the first instance. */
static void add_all(void) {
  for (uint32_t i = 0; i < sim_link.page->device_count; i++)
    if (!is_instance((int)i) && usable((int)i) == (int)i) device_add((int)i);
  if (device_count == 0) device_add(usable(0));
}

void sim_devices_find(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  device_count = 0;
  if (!visible) add_all();
  for (bool more = visible != NULL; more;) {
    while (isspace((unsigned char)*visible)) visible++;
    size_t length = strcspn(visible, ","), used = length;
    while (used && isspace((unsigned char)visible[used - 1])) used--;
    int index = entry_index(visible, used);
    if (index >= 0) index = usable(index);
    if (index >= 0 && is_instance(index)) {
      if (device_count == 0) device_add(index);
      return;
    }
    for (int i = 0; i < device_count; i++)
      if (devices[i].index == index) { /* named twice: none at all, as the driver answers */
        device_count = 0;
        return;
      }
    if (index < 0) return;
    device_add(index);
    more = visible[length] == ',';
    visible += length + 1;
  }
}

/* Every entry point about a device: initialised, result wanted, device there. */
static CUresult check(const void *result, CUdevice ordinal) {
  CUresult ready = sim_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (!result) return CUDA_ERROR_INVALID_VALUE;
  return sim_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_PUBLIC CUresult cuDeviceGetCount(int *ret_count) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_count) return CUDA_ERROR_INVALID_VALUE;
  *ret_count = device_count;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceGet(CUdevice *ret_device, int ordinal) {
  CUresult result = check(ret_device, ordinal);
  if (result == CUDA_SUCCESS) *ret_device = ordinal;
  return result;
}

SIM_PUBLIC CUresult cuDeviceGetName(char *ret_name, int length, CUdevice ordinal) {
  CUresult result = check(ret_name, ordinal);
  if (result == CUDA_SUCCESS && length <= 0) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) snprintf(ret_name, (size_t)length, "%s", devices[ordinal].name);
  return result;
}

SIM_PUBLIC CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice ordinal) {
  CUresult result = check(ret_uuid, ordinal);
  if (result == CUDA_SUCCESS) *ret_uuid = devices[ordinal].uuid;
  return result;
}

/* The first version knows no instances: it answers their GPU's. */
SIM_PUBLIC CUresult cuDeviceGetUuid(CUuuid *ret_uuid, CUdevice ordinal) {
  CUresult result = cuDeviceGetUuid_v2(ret_uuid, ordinal);
  if (result != CUDA_SUCCESS) return result;
  uint32_t parent = sim_link.page->devices[devices[ordinal].index].parent;
  if (parent) memcpy(ret_uuid->bytes, sim_link.page->devices[parent - 1].uuid, sizeof ret_uuid->bytes);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice ordinal) {
  CUresult result = check(ret_bytes, ordinal);
  if (result == CUDA_SUCCESS) *ret_bytes = devices[ordinal].memory_bytes;
  return result;
}

SIM_PUBLIC CUresult cuDeviceTotalMem(unsigned *ret_bytes, CUdevice ordinal) {
  CUresult result = check(ret_bytes, ordinal);
  if (result == CUDA_SUCCESS)
    *ret_bytes = devices[ordinal].memory_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)devices[ordinal].memory_bytes;
  return result;
}

static unsigned bus_of(const struct sim_device *device) {
  return sim_link.page->devices[device->index].pci_bus;
}

SIM_PUBLIC CUresult cuDeviceGetPCIBusId(char *ret_text, int length, CUdevice ordinal) {
  CUresult result = check(ret_text, ordinal);
  if (result == CUDA_SUCCESS && length <= 0) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) snprintf(ret_text, (size_t)length, "0000:%02X:00.0", bus_of(&devices[ordinal]));
  return result;
}

SIM_PUBLIC CUresult cuDeviceGetByPCIBusId(CUdevice *ret_device, const char *text) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_device || !text) return CUDA_ERROR_INVALID_VALUE;
  unsigned first, second, third;
  int parts = sscanf(text, "%x:%x:%x", &first, &second, &third);
  unsigned bus = parts == 3 ? second : first;
  for (int i = 0; parts >= 2 && i < device_count; i++)
    if (bus_of(&devices[i]) == bus) {
      *ret_device = i;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIM_PUBLIC CUresult cuDeviceGetLuid(char *ret_luid, unsigned *ret_mask, CUdevice ordinal) {
  CUresult result = check(ret_luid, ordinal);
  (void)ret_mask;
  return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result; /* a thing of Windows */
}

SIM_PUBLIC CUresult cuDeviceCanAccessPeer(int *ret_can, CUdevice ordinal, CUdevice peer) {
  CUresult result = check(ret_can, ordinal);
  if (result == CUDA_SUCCESS && !sim_device(peer)) result = CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS) *ret_can = ordinal != peer;
  return result;
}

SIM_PUBLIC CUresult cuDeviceGetP2PAttribute(int *ret_value, CUdevice_P2PAttribute attribute, CUdevice source,
                                            CUdevice destination) {
  CUresult result = check(ret_value, source);
  if (result != CUDA_SUCCESS) return result;
  if (!sim_device(destination) || source == destination) return CUDA_ERROR_INVALID_DEVICE;
  *ret_value = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : 1;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceGetExecAffinitySupport(int *ret_supported, CUexecAffinityType type, CUdevice ordinal) {
  CUresult result = check(ret_supported, ordinal);
  (void)type;
  if (result == CUDA_SUCCESS) *ret_supported = 0; /* without MPS */
  return result;
}

/* The link between devices carries every operation on words, as the link to the host does those on integers. */
static CUresult atomics(unsigned *ret_capabilities, const CUatomicOperation *operations, unsigned count, bool floats) {
  if (!ret_capabilities || !operations || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++)
    if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++)
    ret_capabilities[i] =
        operations[i] < CU_ATOMIC_OPERATION_FLOAT_ADD || floats
            ? CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64
            : 0;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceGetHostAtomicCapabilities(unsigned *ret_capabilities, const CUatomicOperation *operations,
                                                      unsigned count, CUdevice ordinal) {
  CUresult result = check(&ordinal, ordinal);
  return result == CUDA_SUCCESS ? atomics(ret_capabilities, operations, count, false) : result;
}

SIM_PUBLIC CUresult cuDeviceGetP2PAtomicCapabilities(unsigned *ret_capabilities, const CUatomicOperation *operations,
                                                     unsigned count, CUdevice source, CUdevice destination) {
  CUresult result = check(&source, source);
  if (result != CUDA_SUCCESS) return result;
  if (!sim_device(destination) || source == destination) return CUDA_ERROR_INVALID_DEVICE;
  return atomics(ret_capabilities, operations, count, true);
}
