/*
 * nvml_abi.h - the types and constants of NVML (libnvidia-ml.so.1) that the simulated NVML and the NVML shim use:
 * facts of the library's binary interface, so that building needs nothing of CUDA. Names keep NVML's spelling,
 * by which programs and tools know them.
 */
#ifndef VG_NVML_ABI_H
#define VG_NVML_ABI_H
#include <stdint.h>

typedef struct vg_nvml_device *nvmlDevice_t;
typedef struct vg_nvml_event_set *nvmlEventSet_t;
typedef int nvmlReturn_t;

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

#define NVML_NAME_BYTES 96      /* every text that a device answers fits */
#define NVML_UUID_TEXT_BYTES 41 /* GPU- or MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx and the terminating zero */
#define NVML_PCI_TEXT_BYTES 32
#define NVML_PCI_LEGACY_TEXT_BYTES 16
#define NVML_MODE_COMPUTE 0
#define NVML_NO_INSTANCE 0xffffffffu /* GPU and compute instance of a process without MIG */

typedef struct {
  char busIdLegacy[NVML_PCI_LEGACY_TEXT_BYTES];
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  char busId[NVML_PCI_TEXT_BYTES];
} nvmlPciInfo_t;

typedef struct {
  char busIdLegacy[NVML_PCI_LEGACY_TEXT_BYTES];
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  unsigned reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
  unsigned gpu, memory; /* percent */
} nvmlUtilization_t;

typedef struct {
  unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;

typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used; /* bytes */
} nvmlMemory_v2_t;

typedef struct {
  const char *nameSpace;                   /* the directory of a cgroup */
  unsigned long long softLimit, hardLimit; /* bytes; all ones: no limit */
} nvmlSetMemoryLimits_v1_t;

typedef struct {
  const char *nameSpace;
  unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

typedef struct {
  unsigned long long bar1Total, bar1Free, bar1Used; /* bytes */
} nvmlBAR1Memory_t;

typedef struct {
  unsigned pid;
  unsigned long long usedGpuMemory; /* bytes */
} nvmlProcessInfo_v1_t;

typedef struct { /* of the _v2 and _v3 calls */
  unsigned pid;
  unsigned long long usedGpuMemory; /* bytes */
  unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
  unsigned pid;
  unsigned long long usedGpuMemory; /* bytes */
  unsigned gpuInstanceId, computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
  unsigned version;
  unsigned mode; /* NVML_MODE_COMPUTE; 1 graphics, 2 MPS */
  unsigned numProcArrayEntries;
  nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
  unsigned pid;
  unsigned long long timeStamp;               /* us since 1970 */
  unsigned smUtil, memUtil, encUtil, decUtil; /* percent */
} nvmlProcessUtilizationSample_t;

typedef struct {
  unsigned gpuUtilization, memoryUtilization;         /* percent, or all ones: not known */
  unsigned long long maxMemoryUsage, time, startTime; /* bytes, ms, us since 1970 */
  unsigned isRunning;
  unsigned reserved[5];
} nvmlAccountingStats_t;

typedef struct {
  unsigned pid, isRunning;
  unsigned gpuUtilization, memoryUtilization; /* percent, or all ones: not known */
  unsigned long long maxMemoryUsage;          /* bytes */
  unsigned sampleCount;
  unsigned long long sumGpuUtil, sumFbUtil; /* percent, over the samples */
  unsigned long long time, startTime;       /* ms, us since 1970 */
} nvmlAccountingStats_v2_t;

typedef struct {
  unsigned sessionId, pid, vgpuInstance, codecType;
  unsigned hResolution, vResolution;
  unsigned averageFps, averageLatency; /* us */
} nvmlEncoderSessionInfo_t;

typedef struct {
  unsigned sessionId, pid, vgpuInstance, displayOrdinal;
  unsigned sessionType, sessionFlags;
  unsigned hMaxResolution, vMaxResolution, hResolution, vResolution;
  unsigned averageFPS, averageLatency; /* us */
} nvmlFBCSessionInfo_t;

typedef struct {
  unsigned sessionsCount, averageFPS, averageLatency; /* us */
} nvmlFBCStats_t;

typedef struct {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct {
  unsigned multiprocessorCount;
  unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
  unsigned gpuInstanceSliceCount, computeInstanceSliceCount;
  unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

/* version words: size of the structure and, in the highest byte, its number */
#define NVML_VERSION(type, number) ((unsigned)sizeof(type) | (number) << 24)

#define NVML_EXPORT __attribute__((visibility("default")))

#endif
