/*
 * external: memory and semaphores of other interfaces. Memory of the driver's own that comes back through a descriptor
 * is charged once, to its maker, and lives as long as anything of it is mapped; a memfd stands for what is another
 * interface's, and is charged to no process. With MAKER_LAST its maker lets go of it after all others.
 */
#define _GNU_SOURCE
#include "program.h"
#include <sys/mman.h>

#define MIB (1ull << 20)

static size_t free_bytes(void) {
  size_t available, total;
  CHECK(cuMemGetInfo_v2(&available, &total));
  return available;
}

static int maker_last(void) {
  return getenv("MAKER_LAST") != NULL;
}

static CUDA_EXTERNAL_MEMORY_HANDLE_DESC opaque(int fd, size_t bytes) {
  return (CUDA_EXTERNAL_MEMORY_HANDLE_DESC){
      .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes};
}

static CUexternalMemory import(int fd, size_t bytes) {
  CUexternalMemory memory;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = opaque(fd, bytes);
  CHECK(cuImportExternalMemory(&memory, &desc));
  return memory;
}

static CUdeviceptr buffer(CUexternalMemory memory, size_t offset, size_t bytes) {
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc = {.offset = offset, .size = bytes};
  CUdeviceptr pointer;
  CHECK(cuExternalMemoryGetMappedBuffer(&pointer, memory, &desc));
  return pointer;
}

static unsigned char byte_at(CUdeviceptr pointer) {
  unsigned char byte;
  CHECK(cuMemcpyDtoH_v2(&byte, pointer, 1));
  return byte;
}

static int exported(CUmemGenericAllocationHandle *ret_handle, size_t bytes) {
  int fd;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CHECK(cuMemCreate(ret_handle, bytes, &prop, 0));
  CHECK(cuMemExportToShareableHandle(&fd, *ret_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return fd;
}

static void of_the_driver(void) {
  CUmemGenericAllocationHandle handle;
  CUexternalMemory memory;
  CUdeviceptr inside;
  size_t first = free_bytes();
  int fd = exported(&handle, 32 * MIB);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = opaque(dup(fd), 64 * MIB);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&memory, &desc)); /* so much is not there */
  TRUE(close(desc.handle.fd) == 0);                                         /* a failed import leaves it the caller's */
  memory = import(fd, 32 * MIB);
  TRUE(close(fd) < 0); /* the driver's now */
  TRUE(first - free_bytes() == 32 * MIB);
  CUdeviceptr whole = buffer(memory, 0, 32 * MIB), part = buffer(memory, 4096 + 256, MIB);
  CHECK(cuMemsetD8_v2(whole + 4096 + 256, 7, 100));
  TRUE(byte_at(part + 99) == 7 && byte_at(part + 100) == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuExternalMemoryGetMappedBuffer(&inside, memory,
                                         &(CUDA_EXTERNAL_MEMORY_BUFFER_DESC){.offset = 31 * MIB, .size = 2 * MIB}));
  TRUE(first - free_bytes() == 32 * MIB);
  if (!maker_last()) CHECK(cuMemRelease(handle));
  CHECK(cuDestroyExternalMemory(memory));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
  CHECK(cuMemFree_v2(whole));
  TRUE(byte_at(part) == 7 && first - free_bytes() == 32 * MIB); /* what is mapped keeps it */
  CUipcMemHandle ipc;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&ipc, part));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(part + 256));
  CHECK(cuMemFree_v2(part));
  if (maker_last()) CHECK(cuMemRelease(handle));
  TRUE(free_bytes() == first);
}

static void mipmaps(void) {
  CUmemGenericAllocationHandle handle;
  CUmipmappedArray mipmap;
  CUarray level;
  unsigned char row[256];
  size_t first = free_bytes();
  CUexternalMemory memory = import(exported(&handle, 4 * MIB), 4 * MIB);
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc = {
      .offset = MIB,
      .arrayDesc = {.Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1},
      .numLevels = 20};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
  desc.numLevels = 3;
  CHECK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
  CHECK(cuMipmappedArrayGetLevel(&level, mipmap, 0));
  CUdeviceptr below = buffer(memory, MIB, MIB);
  CHECK(cuMemsetD8_v2(below, 9, 256));
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                        .srcArray = level,
                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                        .dstHost = row,
                        .WidthInBytes = 256,
                        .Height = 1};
  CHECK(cuMemcpy2D_v2(&copy));
  TRUE(row[0] == 9 && row[255] == 9);
  if (!maker_last()) CHECK(cuMemRelease(handle));
  CHECK(cuDestroyExternalMemory(memory));
  CHECK(cuMemFree_v2(below));
  TRUE(first - free_bytes() == 4 * MIB);
  CHECK(cuMipmappedArrayDestroy(mipmap));
  if (maker_last()) CHECK(cuMemRelease(handle));
  TRUE(free_bytes() == first);
}

static void of_nobody(void) {
  int fd = memfd_create("elsewhere", 0);
  size_t first = free_bytes();
  TRUE(ftruncate(fd, 8 * MIB) == 0 && pwrite(fd, "x", 1, MIB) == 1);
  CUexternalMemory memory = import(dup(fd), 8 * MIB);
  CUdeviceptr pointer = buffer(memory, MIB, MIB);
  TRUE(byte_at(pointer) == 'x' && free_bytes() == first);
  CHECK(cuDestroyExternalMemory(memory));
  CHECK(cuMemFreeAsync(pointer, NULL));
  close(fd);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = opaque(STDIN_FILENO, MIB);
  desc.handle.fd = 1000;
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuImportExternalMemory(&memory, &desc));
  desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP;
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&memory, &desc));
}

static void by_address(void) {
  CUdeviceptr pointer;
  int fd;
  size_t first = free_bytes();
  CHECK(cuMemAlloc_v2(&pointer, 8 * MIB));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuMemGetHandleForAddressRange(&fd, pointer, 16 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuMemGetHandleForAddressRange(&fd, pointer, 100, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CHECK(cuMemGetHandleForAddressRange(&fd, pointer, 8 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = opaque(fd, 8 * MIB);
  CUexternalMemory memory;
  desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
  CHECK(cuImportExternalMemory(&memory, &desc));
  CUdeviceptr other = buffer(memory, 4 * MIB, 4 * MIB);
  CHECK(cuMemsetD8_v2(pointer + 4 * MIB, 5, 1));
  TRUE(byte_at(other) == 5 && first - free_bytes() == 8 * MIB);
  if (!maker_last()) CHECK(cuMemFree_v2(pointer));
  TRUE(byte_at(other) == 5 && first - free_bytes() == 8 * MIB);
  CHECK(cuDestroyExternalMemory(memory));
  CHECK(cuMemFree_v2(other));
  if (maker_last()) CHECK(cuMemFree_v2(pointer));
  for (int i = 0; i < 500 && free_bytes() != first; i++)
    usleep(10000); /* the server notices that the descriptor is closed */
  TRUE(free_bytes() == first);
}

/* ---- semaphores ---- */

static CUexternalSemaphore semaphore(CUexternalSemaphoreHandleType type, volatile unsigned long long **ret_state) {
  CUexternalSemaphore made;
  int fd = memfd_create("semaphore", 0);
  TRUE(ftruncate(fd, 4096) == 0);
  *ret_state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = type, .handle.fd = fd};
  CHECK(cuImportExternalSemaphore(&made, &desc));
  return made;
}

static void timeline(CUstream one, CUstream two) {
  volatile unsigned long long *state;
  CUexternalSemaphore made = semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD, &state);
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.params.fence.value = 3};
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.params.fence.value = 2};
  CHECK(cuWaitExternalSemaphoresAsync(&made, &wait, 1, one));
  CHECK(cuSignalExternalSemaphoresAsync(&made, &signal, 1, two));
  CHECK(cuStreamSynchronize(two));
  TRUE(*state == 2);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  *state = 3; /* the other interface signals, too */
  CHECK(cuStreamSynchronize(one));
  wait.flags = 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuWaitExternalSemaphoresAsync(&made, &wait, 1, one));
  CHECK(cuDestroyExternalSemaphore(made));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuSignalExternalSemaphoresAsync(&made, &signal, 1, two));
}

static void binary_in_graphs(CUstream one, CUstream two) {
  volatile unsigned long long *state;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  size_t count = 1;
  CUgraphNodeType type;
  CUexternalSemaphore made = semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, &state);
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {0};
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {0};
  CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK(cuWaitExternalSemaphoresAsync(&made, &wait, 1, one));
  CHECK(cuStreamEndCapture(one, &graph));
  CHECK(cuGraphGetNodes(graph, &node, &count));
  CHECK(cuGraphNodeGetType(node, &type));
  TRUE(count == 1 && type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK(cuGraphLaunch(exec, one));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  CHECK(cuSignalExternalSemaphoresAsync(&made, &signal, 1, two));
  CHECK(cuStreamSynchronize(one));
  TRUE(*state == 0); /* the stream that waited has taken it */
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuDestroyExternalSemaphore(made));
}

int main(void) {
  CUstream one, two;
  CUcontext context = begin();
  of_the_driver();
  mipmaps();
  of_nobody();
  by_address();
  CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  timeline(one, two);
  binary_in_graphs(one, two);
  size_t first = free_bytes();
  CUmemGenericAllocationHandle handle;
  buffer(import(exported(&handle, 4 * MIB), 4 * MIB), 0, MIB);
  if (!maker_last()) CHECK(cuMemRelease(handle));
  CHECK(cuCtxDestroy_v2(context)); /* unmaps it; the imported memory itself is of no context */
  context = begin();
  TRUE(first - free_bytes() == 4 * MIB);
  CHECK(cuCtxDestroy_v2(context));
  puts("ok");
  return 0;
}
