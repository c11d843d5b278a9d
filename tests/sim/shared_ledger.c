/*
 * shared_ledger.c - a maker of memory and an opener of it, step by step: each step is said on stdout as
 * {"step": name, "maker": pid, "opener": pid, "left": bytes that the opener alone still holds}, then a line on stdin is
 * waited for. The reader compares what server and ledger count for the two.
 */
#include "shared.h"

#define MIB (1ull << 20)

struct order {
  CUipcMemHandle handle;
  char word;
};

static CUmemAllocationProp prop_of(CUmemLocationType type) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {type, 0}};
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes) {
  CUdeviceptr address;
  CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK(cuMemMap(address, bytes, 0, handle, 0));
  return address;
}

/* Opens what it is given, holds it until the next word, closes it; until the maker ends. */
static void opener(struct pipes *pipes) {
  struct order order;
  begin();
  peer_say(pipes, "r", 1);
  while (recv(pipes->fd, &order, sizeof order, MSG_WAITALL) == (ssize_t)sizeof order) {
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    int fd = peer_hear_fd(pipes);
    CHECK(cuIpcOpenMemHandle_v2(&pointer, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CUdeviceptr address = map(handle, 32 * MIB);
    CHECK(cuMemRelease(handle));
    peer_say(pipes, "o", 1);
    peer_hear(pipes, &order.word, 1);
    CHECK(cuMemUnmap(address, 32 * MIB));
    CHECK(cuMemAddressFree(address, 32 * MIB));
    CHECK(cuIpcCloseMemHandle(pointer));
    peer_say(pipes, "c", 1);
  }
}

static struct pipes other;

static void step(const char *name, unsigned long long left) {
  char line[8];
  printf("{\"step\": \"%s\", \"maker\": %d, \"opener\": %d, \"left\": %llu}\n", name, (int)getpid(), (int)other.pid,
         left);
  fflush(stdout);
  TRUE(fgets(line, sizeof line, stdin) != NULL);
}

static CUdeviceptr pointer;
static CUmemGenericAllocationHandle handle;

static void share(void) {
  CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
  struct order order = {0};
  char word;
  int fd;
  CHECK(cuMemAlloc_v2(&pointer, 8 * MIB));
  CHECK(cuMemCreate(&handle, 32 * MIB, &prop, 0));
  step("made", 0);
  CHECK(cuIpcGetMemHandle(&order.handle, pointer));
  CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  peer_say(&other, &order, sizeof order);
  peer_send_fd(&other, fd);
  close(fd);
  peer_hear(&other, &word, 1);
  step("opened", 0);
}

static void close_there(void) {
  char word = 'c';
  peer_say(&other, &word, 1);
  peer_hear(&other, &word, 1);
}

static void multicast(void) {
  CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmulticastObjectProp wanted = {.numDevices = 1, .size = 64 * MIB};
  CUmemGenericAllocationHandle object, memory;
  CHECK(cuMulticastCreate(&object, &wanted));
  CHECK(cuMulticastAddDevice(object, 0));
  for (int i = 0; i < 2; i++) {
    CHECK(cuMemCreate(&memory, 16 * MIB, &prop, 0));
    CHECK(cuMulticastBindMem(object, 16 * MIB * (unsigned)i, memory, 0, 16 * MIB, 0));
    if (i == 1) EXPECT(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 0, memory, 0, 16 * MIB, 0));
    CHECK(cuMemRelease(memory));
  }
  CHECK(cuMemCreate(&memory, 4 * MIB, &prop, 0));
  CUdeviceptr address = map(memory, 4 * MIB);
  CHECK(cuMulticastBindAddr(object, 32 * MIB, address, 4 * MIB, 0));
  CHECK(cuMemUnmap(address, 4 * MIB));
  CHECK(cuMemRelease(memory));
  step("bound to a multicast object", 0);
  CHECK(cuMulticastUnbind(object, 0, 0, 16 * MIB));
  step("unbound", 0);
  address = map(object, 64 * MIB);
  CHECK(cuMemRelease(object));
  step("the object is mapped still", 0);
  CHECK(cuMemUnmap(address, 64 * MIB));
  step("the object is gone", 0);
}

int main(void) {
  CUmemAllocationProp host = prop_of(CU_MEM_LOCATION_TYPE_HOST);
  CUmemGenericAllocationHandle retained;
  char word;
  peer_start(&other, opener);
  peer_hear(&other, &word, 1);
  begin();
  step("contexts", 0);
  share();
  close_there();
  step("closed", 0);
  CUdeviceptr address = map(handle, 32 * MIB);
  CHECK(cuMemRetainAllocationHandle(&retained, (void *)address));
  CHECK(cuMemRelease(handle));
  CHECK(cuMemUnmap(address, 32 * MIB));
  step("retained", 0);
  CHECK(cuMemRelease(retained));
  CHECK(cuMemFree_v2(pointer));
  step("freed", 0);
  share();
  CHECK(cuMemRelease(handle));
  CHECK(cuMemFree_v2(pointer));
  step("held by the opener alone", 40 * MIB);
  close_there();
  step("let go", 0);
  CHECK(cuMemCreate(&handle, 64 * MIB, &host, 0));
  step("memory of the host", 0);
  multicast();
  peer_end(&other);
  return 0;
}
