/*
 * numbers.h - the narrow floating-point types of NCCL, to and from float: IEEE half precision, bfloat16, and the two
 * FP8 types of "FP8 Formats for Deep Learning" (E4M3 has no infinity). Rounded to nearest, ties to even.
 */
#ifndef SC_NCCL_NUMBERS_H
#define SC_NCCL_NUMBERS_H
#include <stdint.h>

float sc_half_to_float(uint16_t bits);
uint16_t sc_float_to_half(float value);
float sc_bfloat_to_float(uint16_t bits);
uint16_t sc_float_to_bfloat(float value);
float sc_e4m3_to_float(uint8_t bits);
uint8_t sc_float_to_e4m3(float value); /* saturates */
float sc_e5m2_to_float(uint8_t bits);
uint8_t sc_float_to_e5m2(float value);

#endif
