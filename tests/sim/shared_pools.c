/*
 * shared_pools.c - a pool that another process imports, and pointers from it: the same bytes, charged to the pool's
 * process, alive until both have freed them.
 */
#include "shared.h"

#define MIB (1ull << 20)

static size_t free_bytes(void) {
  size_t available, total;
  CHECK(cuMemGetInfo_v2(&available, &total));
  return available;
}

static void importer(struct pipes *pipes) {
  CUmemPoolPtrExportData data[2];
  CUdeviceptr pointers[2], unused;
  CUmemoryPool pool;
  unsigned char byte;
  begin();
  peer_say(pipes, "r", 1);
  int fd = peer_hear_fd(pipes);
  size_t before = free_bytes();
  CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&unused, 4096, pool, NULL));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
  peer_hear(pipes, data, sizeof data);
  for (int i = 0; i < 2; i++) {
    CHECK(cuMemPoolImportPointer(&pointers[i], pool, &data[i]));
    CHECK(cuMemcpyDtoH_v2(&byte, pointers[i], 1));
    TRUE(byte == 0x31 + i);
  }
  TRUE(free_bytes() == before);
  peer_say(pipes, "i", 1);
  peer_hear(pipes, &byte, 1); /* freed, trimmed and destroyed there */
  CHECK(cuMemcpyDtoH_v2(&byte, pointers[1], 1));
  TRUE(byte == 0x32 && free_bytes() == before);
  CHECK(cuMemFree_v2(pointers[0]));
  CHECK(cuMemFreeAsync(pointers[1], NULL));
  TRUE(free_bytes() == before + 10 * MIB);
  CHECK(cuMemPoolDestroy(pool));
  peer_say(pipes, "f", 1);
  TRUE(recv(pipes->fd, &byte, 1, 0) == 0); /* its context goes when the other has looked */
}

int main(void) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemPoolPtrExportData data[2];
  CUdeviceptr pointers[2];
  CUmemoryPool pool, plain;
  struct pipes other;
  char word;
  int fd;
  peer_start(&other, importer);
  peer_hear(&other, &word, 1);
  begin();
  size_t at_first = free_bytes();
  CHECK(cuDeviceGetDefaultMemPool(&plain, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuMemPoolExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(cuMemPoolCreate(&pool, &props));
  for (int i = 0; i < 2; i++) {
    CHECK(cuMemAllocFromPoolAsync(&pointers[i], i == 0 ? 4096 : 8 * MIB, pool, NULL));
    CHECK(cuMemsetD8_v2(pointers[i], (unsigned char)(0x31 + i), 1));
  }
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data[0], pointers[0])); /* its pool is not shared yet */
  CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  for (int i = 0; i < 2; i++) CHECK(cuMemPoolExportPointer(&data[i], pointers[i]));
  peer_send_fd(&other, fd);
  close(fd);
  peer_say(&other, data, sizeof data);
  peer_hear(&other, &word, 1);
  TRUE(at_first - free_bytes() == 10 * MIB);
  for (int i = 0; i < 2; i++) CHECK(cuMemFreeAsync(pointers[i], NULL));
  CHECK(cuMemPoolDestroy(pool));
  TRUE(at_first - free_bytes() == 10 * MIB); /* the other has it */
  peer_say(&other, "d", 1);
  peer_hear(&other, &word, 1);
  TRUE(free_bytes() == at_first);
  peer_end(&other);
  puts("ok");
  return 0;
}
