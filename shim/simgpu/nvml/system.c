/*
 * system.c - simulated NVML: start, end, versions, error texts. Called by programs.
 */
#include "simgpu/constants.h"
#include "simgpu/nvml/page.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_TEXT "580.00.00-sim" /* the driver branch of CUDA 13.0, marked as simulated */
#define BRANCH_TEXT "r580_00-sim"
#define NVML_TEXT "13.580.00.00-sim"

struct driver_branch { /* nvmlSystemDriverBranchInfo_v1_t */
  unsigned version;
  char branch[80];
};

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  (void)flags; /* whether to fail without devices, and not to attach: both without meaning here */
  return sim_nvml_open();
}
NVML_EXPORT nvmlReturn_t nvmlInit_v2(void) {
  return nvmlInitWithFlags(0);
}
NVML_EXPORT nvmlReturn_t nvmlInit(void) {
  return nvmlInit_v2();
}
NVML_EXPORT nvmlReturn_t nvmlShutdown(void) {
  return sim_nvml_close();
}

static nvmlReturn_t answer_text(const char *text, char *ret_text, unsigned bytes) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (ret_text == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (bytes <= strlen(text)) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(ret_text, text);
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *ret_text, unsigned bytes) {
  return answer_text(DRIVER_TEXT, ret_text, bytes);
}

/* length: how many bytes of info->branch may be written. */
NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverBranch(struct driver_branch *info, unsigned length) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (info == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != NVML_VERSION(struct driver_branch, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return answer_text(BRANCH_TEXT, info->branch, length);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *ret_text, unsigned bytes) {
  return answer_text(NVML_TEXT, ret_text, bytes);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *ret_version) {
  if (ret_version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_version = SIM_DRIVER_VERSION;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *ret_version) {
  return nvmlSystemGetCudaDriverVersion_v2(ret_version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *ret_name, unsigned bytes) {
  char path[64], name[4096];
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (ret_name == NULL || bytes == 0) return NVML_ERROR_INVALID_ARGUMENT;
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return NVML_ERROR_NOT_FOUND;
  size_t length = fread(name, 1, sizeof name - 1, file);
  fclose(file);
  name[length] = 0; /* the first word ends at the first zero */
  snprintf(ret_name, bytes, "%s", name);
  return NVML_SUCCESS;
}

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
  static const struct {
    nvmlReturn_t code;
    const char *text;
  } texts[] = {
      {NVML_SUCCESS, "Success"},
      {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
      {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
      {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
      {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
      {NVML_ERROR_NOT_FOUND, "Not Found"},
      {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
      {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
      {NVML_ERROR_TIMEOUT, "Timeout"},
      {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
      {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
      {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
      {NVML_ERROR_MEMORY, "Insufficient Memory"},
      {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (texts[i].code == code) return texts[i].text;
  return "Unknown Error";
}

NVML_EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned *ret_count) {
  if (ret_count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_count = 0;
  return sim_nvml_ready();
}
