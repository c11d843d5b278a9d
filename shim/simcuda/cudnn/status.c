/* status.c - see status.h; and the functions that say what the library is and what went wrong. */
#include "simcuda/cudnn/status.h"
#include "simcuda/common/public.h"
#include <stdio.h>

/* PyTorch wants the version that it was built for, or a later one of the same major version. */
#define VERSION_MAJOR 9
#define VERSION_MINOR 20
#define VERSION_PATCH 0
/* the CUDA runtime of the libraries beside this one */
#define CUDART_VERSION 13000

static _Thread_local char last_error[256];

int sc_dnn_fail(int status, const char *reason) {
  snprintf(last_error, sizeof last_error, "SIMULATED cuDNN: %s (status %d)", reason, status);
  return status;
}

int sc_dnn_driver_status(int result) {
  if (result == 0) return CUDNN_STATUS_SUCCESS;
  snprintf(last_error, sizeof last_error, "SIMULATED cuDNN: the driver answered %d to a launch", result);
  return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
}

SC_PUBLIC size_t cudnnGetVersion(void) {
  return VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
}

SC_PUBLIC size_t cudnnGetCudartVersion(void) {
  return CUDART_VERSION;
}

SC_PUBLIC int cudnnGetProperty(int type, int *value) {
  static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
  if (value == NULL) return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetProperty has no place for it");
  if (type < CUDNN_PROPERTY_MAJOR || type > CUDNN_PROPERTY_PATCH)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetProperty knows major, minor and patch");
  *value = values[type];
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC const char *cudnnGetErrorString(int status) {
  static const struct {
    int status;
    const char *name;
  } names[] = {
#define NAME(status) {status, #status}
      NAME(CUDNN_STATUS_SUCCESS),
      NAME(CUDNN_STATUS_NOT_INITIALIZED),
      NAME(CUDNN_STATUS_BAD_PARAM),
      NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER),
      NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED),
      NAME(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND),
      NAME(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT),
      NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH),
      NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE),
      NAME(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE),
      NAME(CUDNN_STATUS_NOT_SUPPORTED),
      NAME(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN),
      NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE),
      NAME(CUDNN_STATUS_INTERNAL_ERROR),
      NAME(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
      NAME(CUDNN_STATUS_EXECUTION_FAILED),
      NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER),
#undef NAME
  };
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].status == status) return names[i].name;
  return "CUDNN_STATUS_UNKNOWN";
}

/* What was kept is gone afterwards. */
SC_PUBLIC void cudnnGetLastErrorString(char *message, size_t size) {
  if (message == NULL || size == 0) return;
  snprintf(message, size, "%s", last_error);
  last_error[0] = '\0';
}
