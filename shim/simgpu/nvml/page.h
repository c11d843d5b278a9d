/*
 * page.h - the simulated NVML's view of the devices: the state page that vgpu-simd writes (wire.h). Every call of a
 * program passes sim_nvml_device() or sim_nvml_ready() first.
 */
#ifndef VG_SIM_NVML_PAGE_H
#define VG_SIM_NVML_PAGE_H
#include "abi/nvml_abi.h"
#include "simgpu/wire.h"
#include <stdbool.h>
#include <stddef.h>

/* What a handle points to; one for each device, as long as the process lives. */
struct vg_nvml_device {
  uint32_t index;
};

/* Busy time at two moments, for figures in percent. */
struct sim_nvml_sample {
  uint64_t taken_ns;
  uint64_t busy_ns;
  uint64_t copy_busy_ns;
  uint32_t process_count;
  struct {
    int32_t pid;
    uint64_t busy_ns;
  } processes[SIM_PROCESSES_MAX];
};

/* Maps the page and makes sure that the server lives. Counted: each needs its sim_nvml_close(). */
nvmlReturn_t sim_nvml_open(void);
nvmlReturn_t sim_nvml_close(void);
int sim_nvml_connect(void);                 /* a connection to the server, or -1 */
nvmlReturn_t sim_nvml_ready(void);          /* NVML_SUCCESS or NVML_ERROR_UNINITIALIZED */
const struct sim_page *sim_nvml_page(void); /* while sim_nvml_ready() says so */
uint32_t sim_nvml_count(void);              /* GPUs; MIG instances come behind them */
nvmlDevice_t sim_nvml_handle(uint32_t index);
/* A consistent copy of what the page says of the device behind the handle. */
nvmlReturn_t sim_nvml_device(nvmlDevice_t device, struct sim_page_device *ret_state);
/* After sim_nvml_device() has said that it is one: */
enum sim_mode sim_nvml_mode(nvmlDevice_t device);
nvmlDevice_t sim_nvml_parent(nvmlDevice_t device); /* the GPU that it is a MIG instance of; NULL: it is a GPU */
nvmlReturn_t sim_nvml_gpu(nvmlDevice_t device);    /* SUCCESS, or NOT_SUPPORTED for a MIG instance; INVALID_ARGUMENT */
/* The copy and two samples at least 50 ms apart, the newer one taken now (waits where there is no older one). */
nvmlReturn_t sim_nvml_samples(nvmlDevice_t device, struct sim_nvml_sample *ret_old, struct sim_nvml_sample *ret_new);
void sim_nvml_apply_limits(nvmlDevice_t device,
                           nvmlMemory_t *memory);                   /* those of the program's cgroup, if it has any */
uint32_t sim_nvml_instance_id(const struct sim_page_device *state); /* of its GPU instance, or NVML_NO_INSTANCE */
void sim_nvml_uuid_text(const struct sim_page_device *state, char ret_text[NVML_UUID_TEXT_BYTES]);

#endif
