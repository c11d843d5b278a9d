/*
 * shared_physical.c - physical memory that two processes hold by handles and descriptors, memory of the host, and
 * multicast objects: what keeps it alive, and that it is charged once.
 */
#include "shared.h"

#define MIB (1ull << 20)

static size_t free_bytes(void) {
  size_t available, total;
  CHECK(cuMemGetInfo_v2(&available, &total));
  return available;
}

static CUmemAllocationProp prop_of(CUmemLocationType type) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {type, 0}};
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes) {
  CUdeviceptr address;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK(cuMemMap(address, bytes, 0, handle, 0));
  CHECK(cuMemSetAccess(address, bytes, &access, 1));
  return address;
}

static void unmap(CUdeviceptr address, size_t bytes) {
  CHECK(cuMemUnmap(address, bytes));
  CHECK(cuMemAddressFree(address, bytes));
}

static CUmemGenericAllocationHandle import(int fd) {
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return handle;
}

static void importer(struct pipes *pipes) {
  CUmemAllocationProp prop;
  unsigned char byte;
  begin();
  peer_say(pipes, "r", 1);
  int fd = peer_hear_fd(pipes);
  size_t before = free_bytes();
  CUmemGenericAllocationHandle handle = import(fd);
  close(fd);
  CHECK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  TRUE(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == 0);
  CUdeviceptr address = map(handle, 32 * MIB);
  CHECK(cuMemcpyDtoH_v2(&byte, address, 1));
  TRUE(byte == 0x21);
  CHECK(cuMemsetD8_v2(address + 31 * MIB, 0x22, 1));
  CHECK(cuMemRelease(handle)); /* the map holds it */
  TRUE(free_bytes() == before);
  peer_say(pipes, "m", 1);
  peer_hear(pipes, &byte, 1); /* the maker has let go */
  TRUE(free_bytes() == before);
  CHECK(cuMemcpyDtoH_v2(&byte, address + 31 * MIB, 1));
  TRUE(byte == 0x22);
  peer_say(pipes, "b", 1);
  peer_hear(pipes, &byte, 1);
  if (byte == 'u') unmap(address, 32 * MIB); /* or it just ends */
}

static void between_processes(struct pipes *pipes, char how) {
  CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemGenericAllocationHandle handle;
  char word;
  int fd;
  size_t at_first = free_bytes();
  CHECK(cuMemCreate(&handle, 32 * MIB, &prop, 0));
  CUdeviceptr address = map(handle, 32 * MIB);
  CHECK(cuMemsetD8_v2(address, 0x21, 1));
  CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  size_t made = free_bytes();
  TRUE(at_first - made == 32 * MIB);
  peer_send_fd(pipes, fd);
  close(fd);
  peer_hear(pipes, &word, 1);
  TRUE(free_bytes() == made);
  unmap(address, 32 * MIB);
  CHECK(cuMemRelease(handle));
  TRUE(free_bytes() == made);
  peer_say(pipes, "l", 1);
  peer_hear(pipes, &word, 1);
  peer_say(pipes, &how, 1);
  peer_end(pipes);
  for (int i = 0; i < 200 && free_bytes() <= at_first; i++) usleep(10000); /* with the other's context */
  TRUE(free_bytes() > at_first);
}

/* A descriptor holds the memory as a handle does. */
static void descriptor_alone(void) {
  CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemGenericAllocationHandle handle, again;
  int fd;
  size_t at_first = free_bytes();
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&again, (void *)(intptr_t)STDIN_FILENO,
                                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CHECK(cuMemCreate(&handle, 8 * MIB, &prop, 0));
  CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(cuMemRelease(handle));
  TRUE(at_first - free_bytes() == 8 * MIB);
  again = import(fd);
  handle = import(fd);
  close(fd);
  CHECK(cuMemRelease(again));
  TRUE(at_first - free_bytes() == 8 * MIB);
  CHECK(cuMemRelease(handle));
  TRUE(free_bytes() == at_first);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CHECK(cuMemCreate(&handle, 8 * MIB, &prop, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(cuMemRelease(handle));
}

static void memory_of_the_host(CUmemLocationType type) {
  CUmemAllocationProp prop = prop_of(type);
  CUmemGenericAllocationHandle handle;
  size_t at_first = free_bytes();
  CHECK(cuMemCreate(&handle, 32 * MIB, &prop, 0));
  CUdeviceptr address = map(handle, 32 * MIB);
  CHECK(cuMemsetD8_v2(address, 7, 100));
  TRUE(*(unsigned char *)address == 7 && free_bytes() == at_first);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)address));
  CHECK(cuMemRelease(handle));
  unmap(address, 32 * MIB);
}

static void multicast(void) {
  CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmulticastObjectProp wanted = {.numDevices = 2, .size = 64 * MIB};
  CUmemGenericAllocationHandle object, memory;
  size_t granularity, at_first = free_bytes();
  CHECK(cuMulticastGetGranularity(&granularity, &wanted, CU_MULTICAST_GRANULARITY_MINIMUM));
  TRUE(64 * MIB % granularity == 0);
  CHECK(cuMulticastCreate(&object, &wanted));
  CHECK(cuMemCreate(&memory, 16 * MIB, &prop, 0));
  CHECK(cuMulticastAddDevice(object, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(object, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 0, memory, 0, 16 * MIB, 0)); /* one is missing */
  CHECK(cuMulticastAddDevice(object, 1));
  CHECK(cuMulticastBindMem(object, 0, memory, 0, 16 * MIB, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 8 * MIB, memory, 0, 8 * MIB, 0));
  CUdeviceptr address = map(memory, 16 * MIB);
  CHECK(cuMulticastBindAddr(object, 16 * MIB, address + 8 * MIB, 8 * MIB, 0));
  unmap(address, 16 * MIB);
  CHECK(cuMemRelease(memory));
  CHECK(cuMulticastUnbind(object, 0, 0, 16 * MIB));
  TRUE(at_first - free_bytes() == 16 * MIB); /* what is bound lives */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(object, 0, 0, 16 * MIB));
  CHECK(cuMemRelease(object));
  TRUE(free_bytes() == at_first);
}

int main(void) {
  struct pipes first, second;
  char word;
  peer_start(&first, importer);
  peer_start(&second, importer);
  peer_hear(&first, &word, 1);
  peer_hear(&second, &word, 1);
  begin();
  between_processes(&first, 'u');
  between_processes(&second, 'e');
  descriptor_alone();
  memory_of_the_host(CU_MEM_LOCATION_TYPE_HOST);
  memory_of_the_host(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  multicast();
  puts("ok");
  return 0;
}
