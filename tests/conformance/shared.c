/*
 * shared: memory and events of another process: IPC handles, file descriptors of mapped memory and of pools. What is
 * opened is there once: opening takes no memory.
 */
#include "pair.h"

#define BYTES (4 * GRANULE)

static void need_ipc(void) {
  need_attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, "the device has no IPC");
}

static void need_fds(void) {
  need_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "no memory by file descriptor");
}

static void change(CUdeviceptr block) {
  char in[4] = "";
  CODE("read", cuMemcpyDtoH_v2(in, block, 4));
  fact("same", strcmp(in, "abc") == 0);
  CODE("write", cuMemcpyHtoD_v2(block, "xyz", 4));
  CODE("wait", cuCtxSynchronize());
}

static void changed(CUdeviceptr block) {
  char in[4] = "";
  NEED(cuMemcpyDtoH_v2(in, block, 4));
  fact("changed", strcmp(in, "xyz") == 0);
}

static void other_ipc_memory(void) {
  CUipcMemHandle handle;
  CUdeviceptr block = 0;
  need_ipc();
  begin();
  say_go();
  hear_bytes(&handle, sizeof handle);
  size_t before = steady_free_bytes();
  CODE("flags", cuIpcOpenMemHandle_v2(&block, handle, 0x10));
  CODE("open", cuIpcOpenMemHandle_v2(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  taken("opened", before);
  change(block);
  CODE("plain_free", cuMemFree_v2(block));
  CODE("close", cuIpcCloseMemHandle(block));
  taken("closed", before);
  CODE("again", cuIpcCloseMemHandle(block));
}

static void ipc_memory(void) {
  CUipcMemHandle handle;
  CUdeviceptr block;
  with_other(other_ipc_memory);
  need_ipc();
  begin_first();
  await_go();
  size_t before = steady_free_bytes();
  NEED(cuMemAlloc_v2(&block, BYTES));
  NEED(cuMemcpyHtoD_v2(block, "abc", 4));
  NEED(cuCtxSynchronize());
  CODE("get", cuIpcGetMemHandle(&handle, block));
  say_bytes(&handle, sizeof handle);
  hear_other();
  changed(block);
  CODE("free", cuMemFree_v2(block));
  fact("freed", comes_back(before));
}

static void ipc_refused(void) {
  CUipcMemHandle handle;
  CUipcEventHandle event_handle;
  CUdeviceptr block, again;
  CUevent event;
  need_ipc();
  begin();
  NEED(cuMemAlloc_v2(&block, BYTES));
  NEED(cuIpcGetMemHandle(&handle, block));
  fact("own_refused", cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS);
  CODE("never_was", cuIpcGetMemHandle(&handle, 0x1234));
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  fact("event_refused", cuIpcGetEventHandle(&event_handle, event) != CUDA_SUCCESS);
  CODE("with_timing", cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

static void other_ipc_event(void) {
  CUipcEventHandle handle;
  CUevent event;
  need_ipc();
  begin();
  hear_bytes(&handle, sizeof handle);
  CODE("open", cuIpcOpenEventHandle(&event, handle));
  CODE("busy", cuEventQuery(event));
  say_go();
  CODE("wait", cuEventSynchronize(event));
  CODE("done", cuEventQuery(event));
  CODE("destroy", cuEventDestroy_v2(event));
}

static void ipc_event(void) {
  static struct gate gate;
  CUipcEventHandle handle;
  CUevent event;
  CUstream stream;
  with_other(other_ipc_event);
  need_ipc();
  begin_first();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CODE("create", cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  CODE("get", cuIpcGetEventHandle(&handle, event));
  close_gate(&gate, stream);
  NEED(cuEventRecord(event, stream));
  say_bytes(&handle, sizeof handle);
  await_go();
  open_gate(&gate);
  hear_other();
  CODE("query", cuEventQuery(event));
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr base;
  NEED(cuMemAddressReserve(&base, BYTES, 0, 0, 0));
  NEED(cuMemMap(base, BYTES, 0, handle, 0));
  NEED(cuMemSetAccess(base, BYTES, &access, 1));
  return base;
}

static CUdeviceptr import(int fd, CUmemGenericAllocationHandle *ret_handle) {
  CODE("import",
       cuMemImportFromShareableHandle(ret_handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  return map(*ret_handle);
}

static void other_fd_memory(void) {
  CUmemGenericAllocationHandle handle = 0;
  need_fds();
  begin();
  say_go();
  int fd = hear_fd();
  size_t before = steady_free_bytes();
  CUdeviceptr base = import(fd, &handle);
  taken("mapped", before);
  change(base);
  CODE("unmap", cuMemUnmap(base, BYTES));
  CODE("release", cuMemRelease(handle));
  taken("released", before);
}

/* Memory that can be shared, with "abc" in it, and its descriptor on the way to the other process. */
static CUdeviceptr share(CUmemGenericAllocationHandle *ret_handle) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  int fd = -1;
  CODE("create", cuMemCreate(ret_handle, BYTES, &prop, 0));
  CUdeviceptr base = map(*ret_handle);
  NEED(cuMemcpyHtoD_v2(base, "abc", 4));
  NEED(cuCtxSynchronize());
  CODE("export", cuMemExportToShareableHandle(&fd, *ret_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  say_fd(fd);
  close(fd);
  return base;
}

static void fd_memory(void) {
  CUmemGenericAllocationHandle handle;
  with_other(other_fd_memory);
  need_fds();
  begin_first();
  await_go();
  CUdeviceptr base = share(&handle);
  hear_other();
  changed(base);
  size_t before = steady_free_bytes();
  CODE("unmap", cuMemUnmap(base, BYTES));
  CODE("release", cuMemRelease(handle));
  fact("freed", comes_back(before + BYTES));
}

static void other_fd_memory_outlives(void) {
  CUmemGenericAllocationHandle handle = 0;
  need_fds();
  begin();
  CUdeviceptr base = import(hear_fd(), &handle);
  say_go();
  await_go();
  change(base);
  changed(base);
}

static void fd_memory_outlives(void) {
  CUmemGenericAllocationHandle handle;
  with_other(other_fd_memory_outlives);
  need_fds();
  begin_first();
  CUdeviceptr base = share(&handle);
  await_go();
  CODE("unmap", cuMemUnmap(base, BYTES));
  CODE("release", cuMemRelease(handle));
  say_go();
  hear_other();
}

static void fd_refused(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemGenericAllocationHandle handle;
  int fd = -1;
  need_fds();
  begin();
  NEED(cuMemCreate(&handle, BYTES, &prop, 0));
  fact("unshared_refused", cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != 0);
  fact("closed_refused",
       cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)999, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0);
}

static void other_fd_pool(void) {
  CUmemPoolPtrExportData data;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemoryPool pool = NULL;
  CUdeviceptr block = 0;
  need_fds();
  begin();
  say_go();
  int fd = hear_fd();
  hear_bytes(&data, sizeof data);
  size_t before = steady_free_bytes();
  CODE("import",
       cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  CODE("pointer", cuMemPoolImportPointer(&block, pool, &data));
  NEED(cuMemPoolSetAccess(pool, &access, 1));
  taken("imported", before);
  change(block);
  fact("alloc_refused", cuMemAllocFromPoolAsync(&(CUdeviceptr){0}, 16, pool, NULL) != CUDA_SUCCESS);
  CODE("free", cuMemFreeAsync(block, NULL));
  CODE("wait", cuCtxSynchronize());
  taken("freed", before);
}

static void fd_pool(void) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemPoolPtrExportData data;
  CUmemoryPool pool;
  CUdeviceptr block;
  int fd = -1;
  with_other(other_fd_pool);
  need_fds();
  begin_first();
  await_go();
  CODE("create", cuMemPoolCreate(&pool, &props));
  NEED(cuMemAllocFromPoolAsync(&block, BYTES, pool, NULL));
  NEED(cuMemcpyHtoD_v2(block, "abc", 4));
  NEED(cuCtxSynchronize());
  CODE("export", cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CODE("pointer", cuMemPoolExportPointer(&data, block));
  say_fd(fd);
  close(fd);
  say_bytes(&data, sizeof data);
  hear_other();
  changed(block);
  CODE("free", cuMemFreeAsync(block, NULL));
  CODE("wait", cuCtxSynchronize());
}

ROWS(ROW(ipc_memory), ROW(ipc_refused), ROW(ipc_event), ROW(fd_memory), ROW(fd_memory_outlives), ROW(fd_refused),
     ROW(fd_pool))
