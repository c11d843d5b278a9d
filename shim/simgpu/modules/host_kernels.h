/*
 * host_kernels.h - the few kernels that really compute on the simulated device. Named by kernels.model.
 */
#ifndef VG_SIM_HOST_KERNELS_H
#define VG_SIM_HOST_KERNELS_H
#include "simgpu/images/image.h"
#include "simgpu/modules/model.h"

/* Tells whether a range of memory may be used by the launching context, and whether it is the device's or the host's.
 */
typedef bool (*sim_host_check)(uint64_t address, uint64_t bytes, bool *ret_on_device);

/* NULL when there is no such implementation. */
const struct sim_host_kernel *sim_host_find(const char *name);
/* Computes on the memory that the parameters name. Returns 0, -EFAULT when a range is not device memory, -EINVAL when
 * the kernel has not the parameters that the rule names, -ENOMEM when there is no host memory for what it touches. */
int sim_host_run(const struct sim_model_rule *rule, const struct sim_image_kernel *kernel, const uint8_t *params,
                 sim_host_check check);

#endif
