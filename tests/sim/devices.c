/*
 * devices: which devices this process sees, as JSON: {"init": code, "devices": [{"name":, "uuid":, "bytes":, "sms":,
 * "bus":}]}. Run with several CUDA_VISIBLE_DEVICES.
 */
#include "program.h"

static void say_device(CUdevice device) {
  char name[64], bus[32];
  CUuuid uuid;
  size_t bytes;
  int sms, index;
  CHECK(cuDeviceGetName(name, sizeof name, device));
  CHECK(cuDeviceGetUuid_v2(&uuid, device));
  CHECK(cuDeviceTotalMem_v2(&bytes, device));
  CHECK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  CHECK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
  CHECK(cuDeviceGetByPCIBusId(&index, bus));
  TRUE(index == device);
  printf("%s{\"name\": \"%s\", \"uuid\": \"", device ? ", " : "", name);
  for (int i = 0; i < 16; i++) printf("%02x", (unsigned char)uuid.bytes[i]);
  printf("\", \"bytes\": %zu, \"sms\": %d, \"bus\": \"%s\"}", bytes, sms, bus);
}

int main(void) {
  CUresult code = cuInit(0);
  int count = 0;
  printf("{\"init\": %d, \"devices\": [", (int)code);
  if (code == CUDA_SUCCESS) CHECK(cuDeviceGetCount(&count));
  for (CUdevice device = 0; device < count; device++) {
    CUdevice same;
    CHECK(cuDeviceGet(&same, device));
    TRUE(same == device);
    say_device(device);
  }
  CUdevice none;
  if (code == CUDA_SUCCESS) EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&none, count));
  puts("]}");
  return 0;
}
