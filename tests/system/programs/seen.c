/* seen: what the program sees of its devices, as one JSON line: ordinal, UUID, bus, memory. */
#include "program.h"

int main(void) {
  int count = 0;
  CUresult started = cuInit(0);
  if (started == CUDA_SUCCESS) CHECK(cuDeviceGetCount(&count));
  printf("{\"init\": %d, \"devices\": [", (int)started);
  for (int i = 0; i < count; i++) {
    CUdevice device;
    CUuuid uuid;
    char bus[32], text[33];
    size_t total;
    CHECK(cuDeviceGet(&device, i));
    CHECK(cuDeviceGetUuid_v2(&uuid, device));
    CHECK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    CHECK(cuDeviceTotalMem_v2(&total, device));
    for (int b = 0; b < 16; b++) sprintf(text + 2 * b, "%02x", (unsigned char)uuid.bytes[b]);
    printf("%s{\"ordinal\": %d, \"uuid\": \"%s\", \"bus\": \"%s\", \"bytes\": %zu}", i ? ", " : "", device, text, bus,
           total);
  }
  printf("]}\n");
  return 0;
}
