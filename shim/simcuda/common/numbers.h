/*
 * numbers.h - CUDA's numbers for types of data (cudaDataType of its public headers) and for the arithmetic of products
 * (cublasComputeType_t), and what a roofline has to know of them. Used by the libraries of linear algebra here.
 */
#ifndef SC_NUMBERS_H
#define SC_NUMBERS_H
#include "simcuda/common/devices.h"
#include <stdbool.h>
#include <stddef.h>

enum sc_data_type {
  SC_R_32F = 0,
  SC_R_64F = 1,
  SC_R_16F = 2,
  SC_R_8I = 3,
  SC_C_32F = 4,
  SC_C_64F = 5,
  SC_C_16F = 6,
  SC_R_8U = 8,
  SC_R_32I = 10,
  SC_R_16BF = 14,
  SC_C_16BF = 15,
  SC_R_64I = 24,
  SC_R_8F_E4M3 = 28,
  SC_R_8F_E5M2 = 29,
  SC_R_4F_E2M1 = 33,
  SC_DATA_TYPES
};

enum sc_compute {
  SC_COMPUTE_16F = 64,
  SC_COMPUTE_16F_PEDANTIC = 65,
  SC_COMPUTE_32F = 68,
  SC_COMPUTE_32F_PEDANTIC = 69,
  SC_COMPUTE_64F = 70,
  SC_COMPUTE_64F_PEDANTIC = 71,
  SC_COMPUTE_32I = 72,
  SC_COMPUTE_32I_PEDANTIC = 73,
  SC_COMPUTE_32F_FAST_16F = 74,
  SC_COMPUTE_32F_FAST_16BF = 75,
  SC_COMPUTE_32F_FAST_TF32 = 77,
  SC_COMPUTE_32F_EMULATED_16BFX9 = 78,
  SC_COMPUTE_64F_EMULATED = 79
};

struct sc_number {
  double bytes;       /* of an element */
  double flops;       /* how many of a real number's operations one of its own takes */
  enum sc_math math;  /* what computes with it at best */
  bool is_fast_float; /* of 32 bits: it may be rounded to TF32 where a program allows it */
};

/* NULL: none of these libraries computes with that type. */
const struct sc_number *sc_find_number(int data_type);

/* What computes a product whose factors are of one type, in the given compute type. False: there is no such pair. */
bool sc_find_product_math(int compute_type, int data_type, enum sc_math *ret_math);

/* Whether a number on the host is zero: a beta, where the output is not read. */
bool sc_is_zero(const void *number, double bytes);

#endif
