/*
 * model.h - what a kernel costs on the simulated device and whether it computes something. Read from the text file
 * kernels.model (VGPU_SIM_KERNELS, else what the server names, else beside the library). Called by module.c when a
 * function is looked up.
 */
#ifndef VG_SIM_MODEL_H
#define VG_SIM_MODEL_H
#include "simcuda/common/devices.h"
#include "simgpu/modules/amount.h"
#include "simgpu/process/process.h"
#include <stdbool.h>
#include <stdint.h>

#define SIM_HOST_ARGS_MAX 6
#define SIM_NS_ARG_MAX 1000000000000ull /* 1,000 s: what a program says is not believed beyond */

enum sim_host_type { SIM_HOST_F32, SIM_HOST_F64, SIM_HOST_I32, SIM_HOST_BYTE, SIM_HOST_ANY };

#define SIM_MEET_MAX 16 /* devices of a server */

struct sim_host_kernel; /* host_kernels.c */

struct sim_model_rule {
  double base_us;                     /* of any launch */
  double wave_us;                     /* for each full device of resident threads */
  int16_t ns_arg;                     /* which kernel parameter says how many ns more it takes; -1: none */
  struct sim_amount bytes, flops;     /* what it moves and computes takes its time, too; no factors: not known */
  enum sc_math math;                  /* what it computes with */
  int product_count;                  /* so many products of it are one: 3 of TF32 for one of FP32 */
  uint16_t meet;                      /* it runs only while so many devices run one; 0: by itself */
  int16_t meet_arg;                   /* which kernel parameter says so instead; -1: none */
  const struct sim_host_kernel *host; /* NULL: takes time and computes nothing */
  enum sim_host_type type;
  CUresult fault;                   /* how it ends: CUDA_SUCCESS or an error that contexts keep */
  uint8_t args[SIM_HOST_ARGS_MAX];  /* which kernel parameter is the n-th argument of host */
  uint8_t sizes[SIM_HOST_ARGS_MAX]; /* of the kernel's parameters, where its image does not say; 0: no more */
};

/* The first rule whose regular expression matches the kernel's name, else the default. Never NULL. Lives for ever. */
const struct sim_model_rule *sim_model_find(const char *kernel_name);
/* Whether its kernels would compute something on a real device, which those that are made for a length do not. */
bool sim_model_should_compute(const struct sim_model_rule *rule);
/* Device time of a launch. device_threads: resident threads of the whole device. */
uint64_t sim_model_cost_ns(const struct sim_model_rule *rule, uint64_t blocks, uint64_t block_threads,
                           uint64_t device_threads);

#endif
