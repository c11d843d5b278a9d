/*
 * amount.h - how much a launch does, as a rule of kernels.model says (bytes=, flops=): a product of numbers, of what
 * the launch has, and of what the kernel's name says. Read by model.c, counted by launch_make.c.
 */
#ifndef VG_SIM_AMOUNT_H
#define VG_SIM_AMOUNT_H
#include <stdbool.h>
#include <stdint.h>

#define SIM_AMOUNT_FACTORS_MAX 8

enum sim_amount_kind {
  SIM_AMOUNT_NUMBER,  /* 65536, 2.5 */
  SIM_AMOUNT_I32,     /* argI.i32, argI.i32@BYTES: a parameter of the kernel, or a field of it */
  SIM_AMOUNT_I64,     /* argI.i64 */
  SIM_AMOUNT_BLOCKS,  /* blocks */
  SIM_AMOUNT_THREADS, /* threads: of all blocks */
  SIM_AMOUNT_REDUCED, /* reduced: elements that PyTorch's reduce_kernel takes, as its parameter says */
  SIM_AMOUNT_NAME     /* type, tensors, lists: bytes, see mangled.h */
};

struct sim_amount {
  int count; /* of factors; 0: no such rule */
  struct sim_amount_factor {
    enum sim_amount_kind kind;
    int arg, offset_bytes;
    double number;
    double (*name_bytes)(const char *name);
  } factors[SIM_AMOUNT_FACTORS_MAX];
};

struct sim_shape {
  const unsigned *grid, *block;
  void **params;        /* as the launch was given them; NULL: it was not */
  uint32_t param_count; /* 0: the image does not list them, and the rule knows that they are there */
};

/* Reads the text behind the equals sign; it is changed. */
bool sim_amount_read(char *text, struct sim_amount *ret_amount);
/* The product of the factors that a name decides; 1 where there are none. */
double sim_amount_of_name(const struct sim_amount *amount, const char *kernel_name);
/* name_amount times the other factors. 0 where a parameter is missing or makes no sense, and where there is no rule. */
double sim_amount_of_launch(const struct sim_amount *amount, double name_amount, const struct sim_shape *shape);

#endif
