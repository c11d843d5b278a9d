/*
 * stub.h - what nvcc's stubs declare and do, for programs that gcc compiles: a fat binary with PTX, registered by a
 * constructor, and the entry points of the CUDA runtime that the programs of this folder call.
 */
#ifndef SIMCUDA_STUB_H
#define SIMCUDA_STUB_H
#include "simcuda/cudart/cudart_abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, void *thread_id, void *block_id, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name, int is_external,
                       size_t bytes, int is_constant, int is_global);
void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address, const char *name,
                              int is_external, size_t bytes, int is_constant, int is_global);
char __cudaInitModule(void **handle);
cudaError_t __cudaGetKernel(CUkernel *ret_kernel, const void *host_function);
cudaError_t __cudaLaunchKernel(CUkernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               CUstream stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaEventCreate(CUevent *event);
cudaError_t cudaEventDestroy(CUevent event);
cudaError_t cudaEventElapsedTime(float *ms, CUevent start, CUevent end);
cudaError_t cudaEventRecord(CUevent event, CUstream stream);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *name);
cudaError_t cudaFuncSetAttribute(const void *name, int attribute, int value);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, int *status);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol);
cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol);
cudaError_t cudaGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   const struct cudaKernelNodeParams *params);
cudaError_t cudaGraphCreate(CUgraph *graph, unsigned flags);
cudaError_t cudaGraphDestroy(CUgraph graph);
cudaError_t cudaGraphExecDestroy(CUgraphExec exec);
cudaError_t cudaGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
cudaError_t cudaGraphKernelNodeGetParams(CUgraphNode node, struct cudaKernelNodeParams *params);
cudaError_t cudaGraphLaunch(CUgraphExec exec, CUstream stream);
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags);
cudaError_t cudaLaunchKernel(const void *name, dim3 grid, dim3 block, void **arguments, size_t shared, CUstream stream);
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, CUstream stream);
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind);
cudaError_t cudaMemset(void *pointer, int value, size_t bytes);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *name, int threads, size_t shared);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamBeginCapture(CUstream stream, int mode);
cudaError_t cudaStreamCreate(CUstream *stream);
cudaError_t cudaStreamDestroy(CUstream stream);
cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *graph);
cudaError_t cudaStreamSynchronize(CUstream stream);

#define EXPECT(error, call)                                                                                            \
  do {                                                                                                                 \
    cudaError_t got_ = (call);                                                                                         \
    if (got_ != (error)) {                                                                                             \
      fprintf(stderr, "%s:%d: %s: %s, expected %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(got_),               \
              cudaGetErrorName(error));                                                                                \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define CHECK(call) EXPECT(cudaSuccess, call)
#define TRUE(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* The host's halves of the device's functions and variables: only their addresses count. */
static char saxpy[1], reduce_f32[1], train[1], lost_kernel[1];
static char counter[4], table[1024], *shared_value;
static void **stub_handle;

static const char stub_ptx[] =
    ".version 8.0\n.target sm_50\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }\n"
    ".visible .entry reduce_f32(.param .u32 n, .param .u64 x, .param .u64 y) { ret; }\n"
    ".visible .entry train(.param .u64 x) { ret; }\n";

/* A container: its header, the header of its one entry, and PTX. */
static struct stub_container {
  struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t body_bytes;
  } head;
  struct {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t body_bytes;
    uint32_t packed_bytes, unknown;
    uint16_t minor, major;
    uint32_t architecture, name_offset, name_bytes;
    uint64_t flags, zero, unpacked_bytes;
  } entry;
  char text[1024];
} stub_container;

static struct sc_fatbin_wrapper stub_wrapper = {SC_FATBIN_MAGIC, 1, &stub_container, NULL};

static void stub_unregister(void) {
  __cudaUnregisterFatBinary(stub_handle);
}

__attribute__((constructor)) static void stub_register(void) {
  stub_container.head.magic = 0xba55ed50;
  stub_container.head.version = 1;
  stub_container.head.header_bytes = sizeof stub_container.head;
  stub_container.head.body_bytes = sizeof stub_container.entry + sizeof stub_container.text;
  stub_container.entry.kind = 1;
  stub_container.entry.header_bytes = sizeof stub_container.entry;
  stub_container.entry.body_bytes = sizeof stub_container.text;
  stub_container.entry.architecture = 50;
  memcpy(stub_container.text, stub_ptx, sizeof stub_ptx);
  stub_handle = __cudaRegisterFatBinary(&stub_wrapper);
  __cudaRegisterFunction(stub_handle, saxpy, saxpy, "saxpy", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(stub_handle, reduce_f32, reduce_f32, "reduce_f32", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(stub_handle, train, train, "train", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(stub_handle, lost_kernel, lost_kernel, "lost_kernel", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterVar(stub_handle, counter, counter, "counter", 0, sizeof counter, 0, 0);
  __cudaRegisterVar(stub_handle, table, table, "table", 0, sizeof table, 0, 0); /* which the image does not name */
  __cudaRegisterManagedVar(stub_handle, (void **)&shared_value, NULL, "shared_value", 0, 4, 0, 0);
  __cudaRegisterFatBinaryEnd(stub_handle);
  atexit(stub_unregister);
}

static inline cudaError_t launch(const void *kernel, unsigned grid, unsigned block, void **arguments, CUstream stream) {
  return cudaLaunchKernel(kernel, (dim3){grid, 1, 1}, (dim3){block, 1, 1}, arguments, 0, stream);
}

/* A kernel that computes nothing and should. */
static inline void launch_train(void *array) {
  void *arguments[] = {&array};
  CHECK(launch(train, 1, 32, arguments, NULL));
}

#endif
