/*
 * cudart_abi.h - types of the CUDA runtime as its programs see them: facts of CUDA's public headers, the same in
 * CUDA 12 and 13. Handles and most structures are the driver's own (gen/abi/cuda_abi.h), which have the same layout.
 */
#ifndef SC_CUDART_ABI_H
#define SC_CUDART_ABI_H
#include "gen/abi/cuda_abi.h"
#include "simcuda/cudart/error_names.h"

typedef int cudaError_t; /* an enum of the runtime; numbers of CUresult fit in */

enum {
#define SC_ERROR(number, name, text) name = number,
  SC_ERRORS(SC_ERROR)
#undef SC_ERROR
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };

#define cudaInvalidDeviceId (-2)
#define cudaDeviceMapHost 0x08

typedef struct dim3 {
  unsigned x, y, z;
} dim3;

struct cudaExtent {
  size_t width, height, depth;
};

struct cudaPos {
  size_t x, y, z;
};

struct cudaPitchedPtr {
  void *ptr;
  size_t pitch, xsize, ysize;
};

struct cudaMemcpy3DParms {
  CUarray srcArray;
  struct cudaPos srcPos;
  struct cudaPitchedPtr srcPtr;
  CUarray dstArray;
  struct cudaPos dstPos;
  struct cudaPitchedPtr dstPtr;
  struct cudaExtent extent;
  enum cudaMemcpyKind kind;
};

enum { cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned, cudaChannelFormatKindFloat };

/* Bits of each channel, and what they are. */
struct cudaChannelFormatDesc {
  int x, y, z, w, f;
};

/* CUDA 13 has reserved words after these. */
struct cudaPointerAttributes {
  enum cudaMemoryType type;
  int device;
  void *devicePointer;
  void *hostPointer;
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
  int maxDynamicSharedSizeBytes, preferredShmemCarveout;
  int clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
  int reserved[16];
};

/* Its attributes are the driver's (CUlaunchAttribute). */
typedef struct cudaLaunchConfig_st {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  CUstream stream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} cudaLaunchConfig_t;

struct cudaKernelNodeParams {
  void *func;
  dim3 gridDim, blockDim;
  unsigned sharedMemBytes;
  void **kernelParams;
  void **extra;
};

struct cudaMemcpyNodeParams {
  int flags;
  int reserved[3];
  struct cudaMemcpy3DParms copyParams;
};

struct cudaMemsetParams {
  void *dst;
  size_t pitch;
  unsigned value, elementSize;
  size_t width, height;
};

/* As CUgraphNodeParams, but for three types of nodes. */
struct cudaGraphNodeParams {
  CUgraphNodeType type;
  int reserved0[3];
  union {
    long long reserved1[29];
    struct cudaKernelNodeParams kernel;
    struct cudaMemcpyNodeParams memcpy;
    struct cudaMemsetParams memset;
  };
  long long reserved2;
};

typedef void (*cudaStreamCallback_t)(CUstream stream, cudaError_t status, void *user_data);

/* What nvcc's stubs register: the container of a fat binary is at data. */
struct sc_fatbin_wrapper {
  int magic;
  int version;
  const void *data;
  void *prelinked;
};
#define SC_FATBIN_MAGIC 0x466243b1

#endif
