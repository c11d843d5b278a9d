/*
 * test_ml_sessions.c - processes, accounting, samples and sessions at the encoders as a slice sees them: its own
 * processes alone, by its own pids, however many others there are, and as many as come while it asks.
 */
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "nvml/processes.h"
#include "nvml/resolve_ml.h"

#define OTHERS 3000u
#define OWN_HOST 5000u /* the host's pid of the slice's process; it calls itself 5 */
#define OWN 5u

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *ret_pids);
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, nvmlAccountingStats_t *ret_stats);
nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats);
nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned *count, nvmlEncoderSessionInfo_t *ret_sessions);
nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned *count, nvmlFBCSessionInfo_t *ret_sessions);
nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *count, unsigned *fps, unsigned *latency_us);
nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *ret_stats);
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *ret_samples,
                                             unsigned *count, unsigned long long last_seen_us);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *ret_infos);

/* ---- the slice: one process with two sessions, half of the device ---- */

static bool in_slice = true;

bool vg_ml_in_slice(void) {
  return in_slice;
}
static struct vg_attach_usage known = {.process_count = 1, .processes = {{.pid = OWN, .host_pid = OWN_HOST}}};
static struct vg_own_memory own_memory;

bool vg_ml_usage(struct vg_attach_usage *ret_usage) {
  *ret_usage = known;
  return true;
}
bool vg_ml_own_memory(const struct vg_ml_device *own, struct vg_own_memory *ret_memory) {
  (void)own;
  *ret_memory = own_memory;
  return true;
}
bool vg_ml_find(nvmlDevice_t handle, struct vg_ml_device *ret_device) {
  (void)handle;
  *ret_device = (struct vg_ml_device){.numbers.max_milli = 500};
  return true;
}
unsigned vg_ml_percent(double of_device, const struct vg_ml_device *own) {
  return (unsigned)(of_device * 1000 / own->numbers.max_milli);
}

/* ---- the real NVML: OTHERS entries and two of the slice's; one more of the others with each question ---- */

static unsigned asked;

static unsigned pid_of(unsigned entry) {
  return entry == 7 || entry == OTHERS ? OWN_HOST : 100000 + entry;
}

static unsigned length(void) {
  return OTHERS + 2 + asked++;
}

static nvmlReturn_t accounting_pids(nvmlDevice_t device, unsigned *count, unsigned *ret_pids) {
  (void)device;
  unsigned capacity = *count;
  *count = length();
  if (capacity < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++) ret_pids[i] = pid_of(i);
  return NVML_SUCCESS;
}

static nvmlReturn_t encoder_sessions(nvmlDevice_t device, unsigned *count, nvmlEncoderSessionInfo_t *ret_sessions) {
  (void)device;
  unsigned capacity = *count;
  *count = length();
  if (capacity == 0) return NVML_SUCCESS;
  if (capacity < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++)
    ret_sessions[i] = (nvmlEncoderSessionInfo_t){.sessionId = i, .pid = pid_of(i), .averageFps = 10 + (i == 7) * 20};
  return NVML_SUCCESS;
}

static nvmlReturn_t capture_sessions(nvmlDevice_t device, unsigned *count, nvmlFBCSessionInfo_t *ret_sessions) {
  (void)device;
  unsigned capacity = *count;
  *count = length();
  if (capacity == 0) return NVML_SUCCESS;
  if (capacity < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++)
    ret_sessions[i] = (nvmlFBCSessionInfo_t){.sessionId = i, .pid = pid_of(i), .averageLatency = 4};
  return NVML_SUCCESS;
}

static nvmlReturn_t encoder_stats(nvmlDevice_t device, unsigned *count, unsigned *fps, unsigned *latency_us) {
  (void)device;
  *count = *fps = *latency_us = 999;
  return NVML_SUCCESS;
}

static nvmlReturn_t capture_stats(nvmlDevice_t device, nvmlFBCStats_t *ret_stats) {
  (void)device;
  *ret_stats = (nvmlFBCStats_t){999, 999, 999};
  return NVML_SUCCESS;
}

static nvmlReturn_t stats(nvmlDevice_t device, unsigned pid, nvmlAccountingStats_t *ret_stats) {
  (void)device;
  if (pid != OWN_HOST && pid < 100000) return NVML_ERROR_NOT_FOUND;
  *ret_stats = (nvmlAccountingStats_t){.gpuUtilization = 30, .memoryUtilization = 20};
  return NVML_SUCCESS;
}

static nvmlReturn_t stats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
  (void)device;
  if (stats->pid != OWN_HOST && stats->pid < 100000) return NVML_ERROR_NOT_FOUND;
  stats->gpuUtilization = 30;
  stats->sumGpuUtil = 300;
  return NVML_SUCCESS;
}

static nvmlReturn_t utilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *ret_samples, unsigned *count,
                                unsigned long long last_seen_us) {
  (void)device;
  unsigned capacity = *count;
  *count = length();
  if (last_seen_us != 77) return NVML_ERROR_NOT_FOUND;
  if (capacity < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++)
    ret_samples[i] = (nvmlProcessUtilizationSample_t){.pid = pid_of(i), .timeStamp = i, .smUtil = 30};
  return NVML_SUCCESS;
}

static nvmlReturn_t running_processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *ret_infos) {
  (void)device, (void)ret_infos;
  *count = 0;
  return NVML_SUCCESS;
}

void *vg_ml_symbol(const char *name) {
  static const struct {
    const char *name;
    void *function;
  } real[] = {{"nvmlDeviceGetAccountingPids", (void *)accounting_pids},
              {"nvmlDeviceGetAccountingStats", (void *)stats},
              {"nvmlDeviceGetAccountingStats_v2", (void *)stats_v2},
              {"nvmlDeviceGetEncoderSessions", (void *)encoder_sessions},
              {"nvmlDeviceGetFBCSessions", (void *)capture_sessions},
              {"nvmlDeviceGetEncoderStats", (void *)encoder_stats},
              {"nvmlDeviceGetFBCStats", (void *)capture_stats},
              {"nvmlDeviceGetComputeRunningProcesses_v3", (void *)running_processes},
              {"nvmlDeviceGetProcessUtilization", (void *)utilization}};
  for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
    if (strcmp(real[i].name, name) == 0) return real[i].function;
  return NULL;
}
nvmlReturn_t vg_ml_missing(void) {
  return NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* ---- tests ---- */

static void test_accounting_pids(void) {
  unsigned pids[4] = {0}, count = 0;
  CHECK(nvmlDeviceGetAccountingPids(NULL, &count, NULL) == NVML_ERROR_INSUFFICIENT_SIZE && count == 2);
  count = 1;
  CHECK(nvmlDeviceGetAccountingPids(NULL, &count, pids) == NVML_ERROR_INSUFFICIENT_SIZE && count == 2);
  count = 4;
  CHECK(nvmlDeviceGetAccountingPids(NULL, &count, pids) == NVML_SUCCESS && count == 2);
  CHECK(pids[0] == OWN && pids[1] == OWN && pids[2] == 0);
}

static void test_accounting_of_a_process(void) {
  nvmlAccountingStats_t stats;
  CHECK(nvmlDeviceGetAccountingStats(NULL, OWN, &stats) == NVML_SUCCESS);
  CHECK(stats.gpuUtilization == 60 && stats.memoryUtilization == 40);
  CHECK(nvmlDeviceGetAccountingStats(NULL, OWN_HOST, &stats) == NVML_ERROR_NOT_FOUND);
  CHECK(nvmlDeviceGetAccountingStats(NULL, 100000, &stats) == NVML_ERROR_NOT_FOUND);
  nvmlAccountingStats_v2_t newer = {.pid = OWN};
  CHECK(nvmlDeviceGetAccountingStats_v2(NULL, &newer) == NVML_SUCCESS);
  CHECK(newer.pid == OWN && newer.gpuUtilization == 60 && newer.sumGpuUtil == 600);
  newer.pid = 100000;
  CHECK(nvmlDeviceGetAccountingStats_v2(NULL, &newer) == NVML_ERROR_NOT_FOUND && newer.pid == 100000);
}

static void test_sessions(void) {
  nvmlEncoderSessionInfo_t encoding[4];
  nvmlFBCSessionInfo_t capturing[4];
  unsigned count = 0;
  CHECK(nvmlDeviceGetEncoderSessions(NULL, &count, NULL) == NVML_SUCCESS && count == 2);
  CHECK(nvmlDeviceGetEncoderSessions(NULL, &count, encoding) == NVML_SUCCESS && count == 2);
  CHECK(encoding[0].pid == OWN && encoding[0].sessionId == 7);
  CHECK(encoding[1].pid == OWN && encoding[1].sessionId == OTHERS);
  count = 1;
  CHECK(nvmlDeviceGetFBCSessions(NULL, &count, capturing) == NVML_ERROR_INSUFFICIENT_SIZE && count == 2);
  CHECK(nvmlDeviceGetFBCSessions(NULL, &count, capturing) == NVML_SUCCESS && capturing[1].sessionId == OTHERS);
}

static void test_means(void) {
  unsigned count, fps, latency_us;
  nvmlFBCStats_t stats;
  CHECK(nvmlDeviceGetEncoderStats(NULL, &count, &fps, &latency_us) == NVML_SUCCESS);
  CHECK(count == 2 && fps == 20 && latency_us == 0);
  CHECK(nvmlDeviceGetFBCStats(NULL, &stats) == NVML_SUCCESS);
  CHECK(stats.sessionsCount == 2 && stats.averageFPS == 0 && stats.averageLatency == 4);
}

static void test_samples(void) {
  nvmlProcessUtilizationSample_t samples[2];
  unsigned count = 2;
  CHECK(nvmlDeviceGetProcessUtilization(NULL, samples, &count, 77) == NVML_SUCCESS && count == 2);
  CHECK(samples[1].pid == OWN && samples[1].timeStamp == OTHERS && samples[1].smUtil == 60);
  CHECK(nvmlDeviceGetProcessUtilization(NULL, samples, &count, 78) == NVML_ERROR_NOT_FOUND);
}

/* What this process shows for itself, beside a neighbour that has 5 bytes. */
static unsigned long long shown_bytes(unsigned *ret_count) {
  nvmlProcessInfo_t infos[4] = {{0}};
  unsigned long long bytes = 0;
  *ret_count = 4;
  CHECK(nvmlDeviceGetComputeRunningProcesses_v3(NULL, ret_count, infos) == NVML_SUCCESS);
  for (unsigned i = 0; i < *ret_count; i++)
    if (infos[i].pid == (unsigned)getpid())
      bytes += infos[i].usedGpuMemory;
    else
      CHECK(infos[i].pid == OWN && infos[i].usedGpuMemory == 5);
  return bytes;
}

static void test_itself_among_the_processes(void) {
  unsigned count;
  known.processes[0].used_bytes = 5;
  own_memory = (struct vg_own_memory){.own_bytes = 100, .contexts = 1};
  CHECK(shown_bytes(&count) == 100 && count == 2); /* the daemon does not know it yet */
  /* of 70 bytes 10 were found past the ledger */
  known.processes[known.process_count++] =
      (struct vg_usage_process){.pid = getpid(), .copies = 1, .used_bytes = 70, .ledger_bytes = 60};
  CHECK(shown_bytes(&count) == 110 && count == 2);
  own_memory.own_bytes = 0;
  CHECK(shown_bytes(&count) == 10 && count == 2);
  known.processes[1].copies = 2; /* the daemon alone knows what the other copy uses */
  CHECK(shown_bytes(&count) == 70 && count == 2);
  known.process_count = 1;
  own_memory.contexts = 0;
  CHECK(shown_bytes(&count) == 0 && count == 1);
}

static void test_without_a_slice(void) {
  unsigned count = 0;
  in_slice = false;
  CHECK(nvmlDeviceGetEncoderSessions(NULL, &count, NULL) == NVML_SUCCESS && count > OTHERS);
}

int main(void) {
  RUN(test_accounting_pids);
  RUN(test_accounting_of_a_process);
  RUN(test_sessions);
  RUN(test_means);
  RUN(test_samples);
  RUN(test_itself_among_the_processes);
  RUN(test_without_a_slice);
  return 0;
}
