/*
 * shared.c - a process that makes memory and one that opens it (cuIpc*): the same bytes, charged once, alive until the
 * last of them lets go. The parent makes; children are started before it uses the driver and take orders by pipe.
 */
#include "shared.h"

#define MIB (1ull << 20)

/* What the server says is free on the device, as any process sees it. */
static size_t free_bytes(void) {
  size_t available, total;
  CHECK(cuMemGetInfo_v2(&available, &total));
  return available;
}

struct order {
  CUipcMemHandle handle;
  unsigned char expected;
};

static void opener(struct pipes *pipes) {
  struct order order;
  CUdeviceptr pointer, again;
  unsigned char bytes[64];
  CUcontext context = begin();
  peer_say(pipes, "r", 1);
  peer_hear(pipes, &order, sizeof order);
  size_t before = free_bytes();
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&pointer, order.handle, 0));
  CHECK(cuIpcOpenMemHandle_v2(&pointer, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(cuIpcOpenMemHandle_v2(&again, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  TRUE(pointer == again && free_bytes() == before);
  CHECK(cuMemcpyDtoH_v2(bytes, pointer, sizeof bytes));
  TRUE(bytes[0] == order.expected && bytes[63] == order.expected);
  CHECK(cuMemsetD8_v2(pointer, order.expected + 1u, 64));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
  CHECK(cuCtxSynchronize());
  peer_say(pipes, "o", 1);
  peer_hear(pipes, bytes, 1); /* the maker has freed it meanwhile: it is there still */
  CHECK(cuMemcpyDtoH_v2(bytes, pointer, sizeof bytes));
  TRUE(bytes[0] == order.expected + 1u && free_bytes() == before);
  CHECK(cuIpcCloseMemHandle(pointer));
  TRUE(free_bytes() == before);
  if (bytes[0] != 0x43) CHECK(cuIpcCloseMemHandle(pointer)); /* else the context's end does it */
  if (bytes[0] != 0x43) EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(pointer));
  CHECK(cuCtxDestroy_v2(context));
  peer_say(pipes, "c", 1);
}

static void round_of(struct pipes *pipes, size_t bytes, unsigned char fill) {
  struct order order = {.expected = fill};
  CUdeviceptr pointer, unused;
  char word;
  unsigned char back[64];
  size_t at_first = free_bytes();
  CHECK(cuMemAlloc_v2(&pointer, bytes));
  CHECK(cuMemsetD8_v2(pointer, fill, 64));
  CHECK(cuIpcGetMemHandle(&order.handle, pointer));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&unused, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  size_t made = free_bytes();
  TRUE(at_first - made == (bytes < 2 * MIB ? 2 * MIB : bytes));
  peer_say(pipes, &order, sizeof order);
  peer_hear(pipes, &word, 1);
  TRUE(word == 'o' && free_bytes() == made);
  CHECK(cuMemcpyDtoH_v2(back, pointer, sizeof back));
  TRUE(back[0] == fill + 1);
  CHECK(cuMemFree_v2(pointer));
  TRUE(free_bytes() == made); /* it is open elsewhere */
  peer_say(pipes, "f", 1);
  peer_hear(pipes, &word, 1);
  TRUE(word == 'c');
}

int main(void) {
  struct pipes first, second;
  char word;
  peer_start(&first, opener);
  peer_start(&second, opener);
  peer_hear(&first, &word, 1);
  peer_hear(&second, &word, 1);
  begin();
  size_t at_first = free_bytes();
  round_of(&first, 8 * MIB, 0x10);
  size_t gone = free_bytes();
  TRUE(gone > at_first); /* with the other's context */
  peer_end(&first);
  round_of(&second, 4096, 0x42);
  TRUE(free_bytes() - gone == gone - at_first);
  peer_end(&second);
  puts("ok");
  return 0;
}
