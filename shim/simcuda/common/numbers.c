/* numbers.c - see numbers.h. */
#include "simcuda/common/numbers.h"

static const struct sc_number numbers[SC_DATA_TYPES] = {
    [SC_R_32F] = {4, 1, SC_MATH_FP32, true},       [SC_R_64F] = {8, 1, SC_MATH_FP64, false},
    [SC_R_16F] = {2, 1, SC_MATH_HALF, false},      [SC_R_16BF] = {2, 1, SC_MATH_HALF, false},
    [SC_C_32F] = {8, 4, SC_MATH_FP32, true},       [SC_C_64F] = {16, 4, SC_MATH_FP64, false},
    [SC_C_16F] = {4, 4, SC_MATH_HALF, false},      [SC_C_16BF] = {4, 4, SC_MATH_HALF, false},
    [SC_R_8I] = {1, 1, SC_MATH_INT8, false},       [SC_R_8U] = {1, 1, SC_MATH_INT8, false},
    [SC_R_32I] = {4, 1, SC_MATH_FP32, false},      [SC_R_64I] = {8, 1, SC_MATH_FP32, false},
    [SC_R_8F_E4M3] = {1, 1, SC_MATH_FP8, false},   [SC_R_8F_E5M2] = {1, 1, SC_MATH_FP8, false},
    [SC_R_4F_E2M1] = {0.5, 1, SC_MATH_FP8, false}, /* no unit of its own up to Hopper */
};

const struct sc_number *sc_find_number(int data_type) {
  if (data_type < 0 || data_type >= SC_DATA_TYPES || numbers[data_type].bytes == 0) return NULL;
  return &numbers[data_type];
}

bool sc_find_product_math(int compute_type, int data_type, enum sc_math *ret_math) {
  const struct sc_number *number = sc_find_number(data_type);
  if (number == NULL) return false;
  switch ((enum sc_compute)compute_type) {
  case SC_COMPUTE_16F:
  case SC_COMPUTE_16F_PEDANTIC:
  case SC_COMPUTE_32F:
    *ret_math = number->math;
    return number->math != SC_MATH_FP64;
  case SC_COMPUTE_32F_PEDANTIC:
  case SC_COMPUTE_32F_EMULATED_16BFX9: /* meant to take no longer than FP32 does */
    *ret_math = SC_MATH_FP32;
    return number->math != SC_MATH_FP64;
  case SC_COMPUTE_32F_FAST_16F:
  case SC_COMPUTE_32F_FAST_16BF:
    *ret_math = SC_MATH_HALF;
    return number->math != SC_MATH_FP64;
  case SC_COMPUTE_32F_FAST_TF32:
    *ret_math = number->is_fast_float ? SC_MATH_TF32 : number->math;
    return number->math != SC_MATH_FP64;
  case SC_COMPUTE_64F:
  case SC_COMPUTE_64F_PEDANTIC:
  case SC_COMPUTE_64F_EMULATED:
    *ret_math = SC_MATH_FP64;
    return number->math == SC_MATH_FP64;
  case SC_COMPUTE_32I:
  case SC_COMPUTE_32I_PEDANTIC:
    *ret_math = SC_MATH_INT8;
    return number->math == SC_MATH_INT8;
  }
  return false;
}

bool sc_is_zero(const void *number, double bytes) {
  const unsigned char *byte = number;
  for (int i = 0; i < bytes; i++)
    if (byte[i] != 0) return false;
  return true;
}
