/*
 * devices.h - what GPUs can do at most, by their names: the figures of NVIDIA's public data sheets. Read by cost.c and
 * by the simulated driver (kernels.model, bytes=); nothing here asks a driver.
 */
#ifndef SC_DEVICES_H
#define SC_DEVICES_H

/* [assumed] What good kernels reach of those figures, for large products and copies. */
#define SC_FLOPS_PART 0.7
#define SC_BYTES_PART 0.8

/* In what arithmetic a kernel works: the units that GPUs have. Half: of 16 bits, with sums of 32. */
enum sc_math { SC_MATH_FP64, SC_MATH_FP32, SC_MATH_TF32, SC_MATH_HALF, SC_MATH_FP8, SC_MATH_INT8, SC_MATH_KINDS };

struct sc_device_model {
  const char *name; /* a word of the device's name */
  int sm_count;
  double bytes_per_ns;                /* of its memory */
  double flops_per_ns[SC_MATH_KINDS]; /* for matrices; without the factor 2 of sparse ones */
};

/* The first model whose name is a word, or several, of the device's name ("SIMULATED H200"), else that of an H200. */
const struct sc_device_model *sc_find_device_model(const char *device_name);

/* The longer of its arithmetic and its traffic with memory, in nanoseconds: how long such a device needs for that work.
 * sm_count: how many it has, or 0 for all of its model; an instance of a divided GPU has its part of everything. */
double sc_find_work_ns(const struct sc_device_model *model, int sm_count, double flops, enum sc_math math,
                       double bytes);

#endif
