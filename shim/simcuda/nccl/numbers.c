/* numbers.c - see numbers.h. */
#include "simcuda/nccl/numbers.h"
#include <math.h>
#include <string.h>

/* A type by its numbers of bits. */
struct format {
  int exponent_bits;
  int fraction_bits;
  int bias;
};

static const struct format half = {5, 10, 15}, e5m2 = {5, 2, 15}, e4m3 = {4, 3, 7};

static float widen(const struct format *format, uint32_t bits) {
  uint32_t fraction = bits & ((1u << format->fraction_bits) - 1);
  int exponent = (int)(bits >> format->fraction_bits & ((1u << format->exponent_bits) - 1));
  float sign = bits >> (format->exponent_bits + format->fraction_bits) & 1 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * ldexpf((float)fraction, 1 - format->bias - format->fraction_bits);
  fraction |= 1u << format->fraction_bits;
  return sign * ldexpf((float)fraction, exponent - format->bias - format->fraction_bits);
}

/* The bits of a finite value but its sign; beyond the largest exponent: more than any number of the type has. */
static uint32_t narrow(const struct format *format, float value) {
  int exponent;
  if (value == 0) return 0;
  frexpf(value, &exponent);
  exponent--; /* of a number from 1 to 2 */
  if (exponent < 1 - format->bias) exponent = 1 - format->bias;
  /* In units of the last place: rint() rounds ties to even. A carry into the next exponent adds up by itself. */
  uint32_t units = (uint32_t)rintf(ldexpf(value, format->fraction_bits - exponent));
  return units + ((uint32_t)(exponent + format->bias - 1) << format->fraction_bits);
}

float sc_half_to_float(uint16_t bits) {
  if ((bits & 0x7c00) == 0x7c00) return bits & 0x3ff ? NAN : bits & 0x8000 ? -INFINITY : INFINITY;
  return widen(&half, bits);
}

uint16_t sc_float_to_half(float value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  if (isnan(value)) return sign | 0x7e00;
  uint32_t bits = isinf(value) || fabsf(value) >= 65520.0f ? 0x7c00 : narrow(&half, fabsf(value));
  return (uint16_t)(sign | bits);
}

float sc_bfloat_to_float(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t sc_float_to_bfloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float sc_e4m3_to_float(uint8_t bits) {
  return (bits & 0x7f) == 0x7f ? NAN : widen(&e4m3, bits);
}

uint8_t sc_float_to_e4m3(float value) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  if (isnan(value)) return sign | 0x7f;
  return (uint8_t)(sign | (fabsf(value) >= 448.0f ? 0x7e : narrow(&e4m3, fabsf(value))));
}

float sc_e5m2_to_float(uint8_t bits) {
  if ((bits & 0x7c) == 0x7c) return bits & 3 ? NAN : bits & 0x80 ? -INFINITY : INFINITY;
  return widen(&e5m2, bits);
}

uint8_t sc_float_to_e5m2(float value) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  if (isnan(value)) return sign | 0x7e;
  if (isinf(value)) return sign | 0x7c;
  return (uint8_t)(sign | (fabsf(value) >= 57344.0f ? 0x7b : narrow(&e5m2, fabsf(value))));
}
