/*
 * reduce.c - see reduce.h. Pieces of all inputs are widened to one of four types, reduced and narrowed again.
 */
#include "simcuda/nccl/reduce.h"
#include "simcuda/nccl/numbers.h"
#include <math.h>
#include <string.h>

#define PIECE 1024u

enum width { WIDE_FLOAT, WIDE_DOUBLE, WIDE_SIGNED, WIDE_UNSIGNED };

union piece {
  float f[PIECE];
  double d[PIECE];
  int64_t s[PIECE];
  uint64_t u[PIECE];
};

static enum width width_of(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclInt32:
  case ncclInt64:
    return WIDE_SIGNED;
  case ncclUint8:
  case ncclUint32:
  case ncclUint64:
    return WIDE_UNSIGNED;
  case ncclFloat64:
    return WIDE_DOUBLE;
  default:
    return WIDE_FLOAT;
  }
}

/* One line a type: how an element is read into its wide type, and written from it. */
#define LOAD(narrow_type, wide, convert)                                                                               \
  for (uint32_t i = 0; i < count; i++) {                                                                               \
    narrow_type value;                                                                                                 \
    memcpy(&value, from + i * sizeof value, sizeof value);                                                             \
    piece->wide[i] = convert(value);                                                                                   \
  }                                                                                                                    \
  break
#define STORE(narrow_type, wide, convert)                                                                              \
  for (uint32_t i = 0; i < count; i++) {                                                                               \
    narrow_type value = (narrow_type)convert(piece->wide[i]);                                                          \
    memcpy(to + i * sizeof value, &value, sizeof value);                                                               \
  }                                                                                                                    \
  break

static void load(ncclDataType_t type, union piece *piece, const uint8_t *from, uint32_t count) {
  switch (type) {
  case ncclInt8:
    LOAD(int8_t, s, );
  case ncclUint8:
    LOAD(uint8_t, u, );
  case ncclInt32:
    LOAD(int32_t, s, );
  case ncclUint32:
    LOAD(uint32_t, u, );
  case ncclInt64:
    LOAD(int64_t, s, );
  case ncclUint64:
    LOAD(uint64_t, u, );
  case ncclFloat16:
    LOAD(uint16_t, f, sc_half_to_float);
  case ncclFloat64:
    LOAD(double, d, );
  case ncclBfloat16:
    LOAD(uint16_t, f, sc_bfloat_to_float);
  case ncclFloat8e4m3:
    LOAD(uint8_t, f, sc_e4m3_to_float);
  case ncclFloat8e5m2:
    LOAD(uint8_t, f, sc_e5m2_to_float);
  default:
    LOAD(float, f, );
  }
}

static void store(ncclDataType_t type, const union piece *piece, uint8_t *to, uint32_t count) {
  switch (type) {
  case ncclInt8:
    STORE(int8_t, s, );
  case ncclUint8:
    STORE(uint8_t, u, );
  case ncclInt32:
    STORE(int32_t, s, );
  case ncclUint32:
    STORE(uint32_t, u, );
  case ncclInt64:
    STORE(int64_t, s, );
  case ncclUint64:
    STORE(uint64_t, u, );
  case ncclFloat16:
    STORE(uint16_t, f, sc_float_to_half);
  case ncclFloat64:
    STORE(double, d, );
  case ncclBfloat16:
    STORE(uint16_t, f, sc_float_to_bfloat);
  case ncclFloat8e4m3:
    STORE(uint8_t, f, sc_float_to_e4m3);
  case ncclFloat8e5m2:
    STORE(uint8_t, f, sc_float_to_e5m2);
  default:
    STORE(float, f, );
  }
}

/* As floating point has it: a number that is none stays. */
#define LARGER(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))

#define ELEMENTS(wide, value)                                                                                          \
  for (uint32_t i = 0; i < count; i++) total->wide[i] = value;                                                         \
  break

#define COMBINE(wide, sum, product)                                                                                    \
  switch (redop) {                                                                                                     \
  case ncclProd:                                                                                                       \
    ELEMENTS(wide, product);                                                                                           \
  case ncclMax:                                                                                                        \
    ELEMENTS(wide, LARGER(total->wide[i], next->wide[i]));                                                             \
  case ncclMin:                                                                                                        \
    ELEMENTS(wide, SMALLER(total->wide[i], next->wide[i]));                                                            \
  default:                                                                                                             \
    ELEMENTS(wide, sum);                                                                                               \
  }                                                                                                                    \
  break

static void combine(enum width width, ncclRedOp_t redop, union piece *total, const union piece *next, uint32_t count) {
  switch (width) {
  case WIDE_FLOAT:
    COMBINE(f, total->f[i] + next->f[i], total->f[i] * next->f[i]);
  case WIDE_DOUBLE:
    COMBINE(d, total->d[i] + next->d[i], total->d[i] * next->d[i]);
  case WIDE_SIGNED: /* without the overflow that C leaves open */
    COMBINE(s, (int64_t)(total->u[i] + next->u[i]), (int64_t)(total->u[i] * next->u[i]));
  default:
    COMBINE(u, total->u[i] + next->u[i], total->u[i] * next->u[i]);
  }
}

static void divide(enum width width, union piece *total, uint32_t divisor, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (width == WIDE_FLOAT) total->f[i] /= (float)divisor;
    if (width == WIDE_DOUBLE) total->d[i] /= (double)divisor;
    if (width == WIDE_SIGNED) total->s[i] /= (int64_t)divisor;
    if (width == WIDE_UNSIGNED) total->u[i] /= divisor;
  }
}

static uint64_t element_bytes(ncclDataType_t type) {
  static const uint8_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

void sc_reduce(ncclDataType_t type, ncclRedOp_t redop, void *result, const uint8_t *const *inputs, uint32_t input_count,
               uint64_t count) {
  enum width width = width_of(type);
  for (uint64_t at = 0; at < count; at += PIECE) {
    union piece total, next;
    uint32_t piece = count - at < PIECE ? (uint32_t)(count - at) : PIECE;
    uint64_t offset = at * element_bytes(type);
    load(type, &total, inputs[0] + offset, piece);
    for (uint32_t i = 1; i < input_count; i++) {
      load(type, &next, inputs[i] + offset, piece);
      combine(width, redop, &total, &next, piece);
    }
    if (redop == ncclAvg) divide(width, &total, input_count, piece);
    store(type, &total, (uint8_t *)result + offset, piece);
  }
}

void sc_multiply(ncclDataType_t type, void *result, const void *input, uint64_t factor, uint64_t count) {
  union piece one, other;
  load(type, &one, (const uint8_t *)&factor, 1);
  for (uint64_t at = 0; at < count; at += PIECE) {
    uint32_t piece = count - at < PIECE ? (uint32_t)(count - at) : PIECE;
    uint64_t offset = at * element_bytes(type);
    load(type, &other, (const uint8_t *)input + offset, piece);
    for (uint32_t i = 0; i < piece; i++) switch (width_of(type)) {
      case WIDE_FLOAT:
        other.f[i] *= one.f[0];
        break;
      case WIDE_DOUBLE:
        other.d[i] *= one.d[0];
        break;
      default:
        other.u[i] *= one.u[0];
      }
    store(type, &other, (uint8_t *)result + offset, piece);
  }
}
