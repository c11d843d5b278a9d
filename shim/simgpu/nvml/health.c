/*
 * health.c - simulated NVML: modes, temperature, power, clocks and links, as an idle or busy H200 would plausibly show
 * them, and the questions that this device refuses. Called by programs; none of it means anything.
 */
#include "base/prim.h"
#include "simgpu/nvml/page.h"
#include <stdbool.h>
#include <string.h>

#define CLOCK_SM_MHZ 1980 /* H200 SXM: maximum of graphics and SM clock */
#define CLOCK_MEMORY_MHZ 3201
#define POWER_LIMIT_MILLIWATTS 700000
#define POWER_IDLE_MILLIWATTS 75000
#define TEMPERATURE_IDLE 30 /* Celsius; each percent of load adds a third of a degree */

static nvmlReturn_t check(nvmlDevice_t device) {
  struct sim_page_device state;
  return sim_nvml_device(device, &state);
}

static nvmlReturn_t answer(nvmlDevice_t device, unsigned value, unsigned *ret_value) {
  nvmlReturn_t result = check(device);
  if (result != NVML_SUCCESS) return result;
  if (ret_value == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_value = value;
  return NVML_SUCCESS;
}

#define ANSWER(name, value)                                                                                            \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *ret_value) {                                            \
    return answer(device, (value), ret_value);                                                                         \
  }
ANSWER(nvmlDeviceGetPersistenceMode, 1) /* the server keeps it alive */
ANSWER(nvmlDeviceGetDisplayMode, 0)
ANSWER(nvmlDeviceGetDisplayActive, 0)
ANSWER(nvmlDeviceGetPerformanceState, 0)
ANSWER(nvmlDeviceGetPowerState, 0)
ANSWER(nvmlDeviceGetPowerManagementMode, 1)
ANSWER(nvmlDeviceGetPowerManagementLimit, POWER_LIMIT_MILLIWATTS)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, POWER_LIMIT_MILLIWATTS)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, POWER_LIMIT_MILLIWATTS)
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, 16)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, 16)
ANSWER(nvmlDeviceGetMemoryBusWidth, 6144)
ANSWER(nvmlDeviceGetAccountingMode, 0)
ANSWER(nvmlDeviceGetVirtualizationMode, 0)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *ret_mode) {
  nvmlReturn_t result = answer(device, 0, ret_mode); /* default: many processes may use it */
  if (result == NVML_SUCCESS && sim_nvml_mode(device) == SIM_MODE_EXCLUSIVE) *ret_mode = 3;
  return result;
}

#define FABRIC_BYTES_MIN 32 /* every version has the state within */
#define FABRIC_BYTES_MAX 256

/* No part of a fabric, which is an answer and no error for a device of this kind: PyTorch asks before it shares memory.
 * The caller's structure begins with its version, whose lower bits are its size; zeros say the rest. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *ret_info) {
  unsigned version;
  nvmlReturn_t result = check(device);
  if (result != NVML_SUCCESS) return result;
  if (ret_info == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  memcpy(&version, ret_info, sizeof version);
  unsigned bytes = version & 0xffffff;
  if (bytes < FABRIC_BYTES_MIN || bytes > FABRIC_BYTES_MAX) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memset((char *)ret_info + sizeof version, 0, bytes - sizeof version);
  return NVML_SUCCESS;
}

static unsigned load_percent(nvmlDevice_t device) {
  struct sim_nvml_sample old, new;
  if (sim_nvml_samples(device, &old, &new) != NVML_SUCCESS || new.taken_ns == old.taken_ns) return 0;
  uint64_t percent = (new.busy_ns - old.busy_ns) * 100 / (new.taken_ns - old.taken_ns);
  return percent > 100 ? 100 : (unsigned)percent;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *ret_celsius) {
  if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_SUCCESS) return result;
  return answer(device, TEMPERATURE_IDLE + load_percent(device) / 3, ret_celsius);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *ret_milliwatts) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_SUCCESS) return result;
  unsigned range = POWER_LIMIT_MILLIWATTS - POWER_IDLE_MILLIWATTS;
  return answer(device, POWER_IDLE_MILLIWATTS + range / 100 * load_percent(device), ret_milliwatts);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *ret_min,
                                                                      unsigned *ret_max) {
  nvmlReturn_t result = answer(device, 200000, ret_min);
  return result != NVML_SUCCESS ? result : answer(device, POWER_LIMIT_MILLIWATTS, ret_max);
}

static nvmlReturn_t answer_clock(nvmlDevice_t device, unsigned type, unsigned *ret_mhz) {
  if (type > 3) return NVML_ERROR_INVALID_ARGUMENT;
  return answer(device, type == 2 ? CLOCK_MEMORY_MHZ : CLOCK_SM_MHZ, ret_mhz); /* 2: memory */
}

#define CLOCK(name)                                                                                                    \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned type, unsigned *ret_mhz) {                               \
    return answer_clock(device, type, ret_mhz);                                                                        \
  }
CLOCK(nvmlDeviceGetClockInfo)
CLOCK(nvmlDeviceGetMaxClockInfo)
CLOCK(nvmlDeviceGetApplicationsClock)
CLOCK(nvmlDeviceGetDefaultApplicationsClock)

static nvmlReturn_t answer_codec(nvmlDevice_t device, unsigned *ret_percent, unsigned *ret_period_us) {
  nvmlReturn_t result = answer(device, 0, ret_percent);
  return result != NVML_SUCCESS ? result : answer(device, 167000, ret_period_us);
}

#define CODEC(name)                                                                                                    \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *ret_percent, unsigned *ret_period_us) {                 \
    return answer_codec(device, ret_percent, ret_period_us);                                                           \
  }
CODEC(nvmlDeviceGetEncoderUtilization)
CODEC(nvmlDeviceGetDecoderUtilization)
CODEC(nvmlDeviceGetJpgUtilization)
CODEC(nvmlDeviceGetOfaUtilization)

static nvmlReturn_t answer_reasons(nvmlDevice_t device, unsigned long long *ret_reasons) {
  nvmlReturn_t result = check(device);
  if (result != NVML_SUCCESS) return result;
  if (ret_reasons == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_reasons = 0;
  return NVML_SUCCESS;
}

#define REASONS(name)                                                                                                  \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned long long *ret_reasons) {                                \
    return answer_reasons(device, ret_reasons);                                                                        \
  }
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons)
REASONS(nvmlDeviceGetCurrentClocksEventReasons)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *ret_current, unsigned *ret_pending) {
  nvmlReturn_t result = answer(device, 1, ret_current);
  return result != NVML_SUCCESS ? result : answer(device, 1, ret_pending);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                                     unsigned long long *ret_errors) {
  if (type > 1 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
  return answer_reasons(device, ret_errors); /* none */
}

#define P2P_NVLINK 2
#define P2P_OK 0
#define P2P_NOT_SUPPORTED 5

/* Of the ways of one device to another only NVLink is simulated. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, int way, int *ret_status) {
  struct sim_page_device one, two;
  nvmlReturn_t result = sim_nvml_device(device, &one);
  if (result == NVML_SUCCESS) result = sim_nvml_device(other, &two);
  if (result != NVML_SUCCESS) return result;
  if (ret_status == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  bool linked = way == P2P_NVLINK && one.nvlink_group != 0 && one.nvlink_group == two.nvlink_group;
  *ret_status = linked ? P2P_OK : P2P_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

/* What a question with a device as its first argument is answered, whatever the others are. */
#define REFUSE(name, code)                                                                                             \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device) {                                                                 \
    nvmlReturn_t result = check(device);                                                                               \
    return result != NVML_SUCCESS ? result : (code);                                                                   \
  }
REFUSE(nvmlDeviceSetComputeMode, NVML_ERROR_NO_PERMISSION)
REFUSE(nvmlDeviceSetPersistenceMode, NVML_ERROR_NO_PERMISSION)
REFUSE(nvmlDeviceSetPowerManagementLimit, NVML_ERROR_NO_PERMISSION)
REFUSE(nvmlDeviceSetMigMode, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetFanSpeed, NVML_ERROR_NOT_SUPPORTED) /* cooled from outside */
REFUSE(nvmlDeviceGetFanSpeed_v2, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetNumFans, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetSerial, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetBoardPartNumber, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetBoardId, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetVbiosVersion, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetInforomImageVersion, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetInforomVersion, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetTemperatureThreshold, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetTotalEnergyConsumption, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetPcieThroughput, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetPcieReplayCounter, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetMemoryErrorCounter, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetDetailedEccErrors, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetRetiredPages, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetRemappedRows, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetNvLinkState, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetSupportedMemoryClocks, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetSupportedGraphicsClocks, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetSamples, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetFieldValues, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetProcessesUtilizationInfo, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetAccountingStats, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetCpuAffinity, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetDriverModel_v2, NVML_ERROR_NOT_SUPPORTED)
REFUSE(nvmlDeviceGetDriverModel, NVML_ERROR_NOT_SUPPORTED)
