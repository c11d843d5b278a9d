/*
 * traffic.h - how many bytes a launch moves, as a rule of kernels.model says (bytes=): a product of numbers, of what
 * the launch has, and of what the kernel's name says. Read by model.c, counted by launch_make.c.
 */
#ifndef VG_SIM_TRAFFIC_H
#define VG_SIM_TRAFFIC_H
#include <stdbool.h>
#include <stdint.h>

#define SIM_TRAFFIC_FACTORS_MAX 8

enum sim_traffic_kind {
  SIM_TRAFFIC_NUMBER,  /* 65536, 2.5 */
  SIM_TRAFFIC_I32,     /* argI.i32: a parameter of the kernel */
  SIM_TRAFFIC_I64,     /* argI.i64 */
  SIM_TRAFFIC_BLOCKS,  /* blocks */
  SIM_TRAFFIC_THREADS, /* threads: of all blocks */
  SIM_TRAFFIC_REDUCED, /* reduced: elements that PyTorch's reduce_kernel takes, as its parameter says */
  SIM_TRAFFIC_NAME     /* type, tensors, lists: bytes, see mangled.h */
};

struct sim_traffic {
  int count; /* of factors; 0: no such rule */
  struct sim_traffic_factor {
    enum sim_traffic_kind kind;
    int arg;
    double number;
    double (*name_bytes)(const char *name);
  } factors[SIM_TRAFFIC_FACTORS_MAX];
};

struct sim_shape {
  const unsigned *grid, *block;
  void **params; /* as the launch was given them; NULL: it was not */
};

/* Reads the text behind bytes=; it is changed. */
bool sim_traffic_read(char *text, struct sim_traffic *ret_traffic);
/* The product of the factors that a name decides; 1 where there are none. */
double sim_traffic_name_bytes(const struct sim_traffic *traffic, const char *kernel_name);
/* All bytes of a launch: name_bytes times the other factors. 0 where a parameter is missing or makes no sense. */
double sim_traffic_bytes(const struct sim_traffic *traffic, double name_bytes, const struct sim_shape *shape);

#endif
