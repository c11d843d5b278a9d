/*
 * cupti.c - the profiling interface of the simulated device has a version and words for its errors, and records
 * nothing: every other name is refused (generated), and PyTorch's profiler then has no events of the device.
 */
#include "simcuda/common/public.h"
#include <stddef.h>
#include <stdint.h>

typedef enum { CUPTI_SUCCESS = 0, CUPTI_ERROR_INVALID_PARAMETER = 1, CUPTI_ERROR_NOT_SUPPORTED = 27 } CUptiResult;

#define API_VERSION 130000 /* of CUDA 13.0 */

CUptiResult cuptiGetVersion(uint32_t *ret_version);
SC_PUBLIC CUptiResult cuptiGetVersion(uint32_t *ret_version) {
  if (ret_version == NULL) return CUPTI_ERROR_INVALID_PARAMETER;
  *ret_version = API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **ret_words);
SC_PUBLIC CUptiResult cuptiGetResultString(CUptiResult result, const char **ret_words) {
  if (ret_words == NULL) return CUPTI_ERROR_INVALID_PARAMETER;
  *ret_words = result == CUPTI_SUCCESS               ? "CUPTI_SUCCESS"
               : result == CUPTI_ERROR_NOT_SUPPORTED ? "CUPTI is not simulated"
                                                     : "an error of CUPTI, which is not simulated";
  return CUPTI_SUCCESS;
}
