/*
 * attributes.h - objects of the simulated cuBLASLt that programs only set and read: descriptors of products, layouts of
 * matrices, preferences. Each is an array of values by the numbers of its attributes.
 */
#ifndef SC_ATTRIBUTES_H
#define SC_ATTRIBUTES_H
#include "simcuda/common/public.h"
#include <stddef.h>
#include <stdint.h>

/* cublasStatus_t of the public header. */
enum sc_lt_status {
  SC_LT_SUCCESS = 0,
  SC_LT_NOT_INITIALIZED = 1,
  SC_LT_ALLOC_FAILED = 3,
  SC_LT_INVALID_VALUE = 7,
  SC_LT_EXECUTION_FAILED = 13,
  SC_LT_NOT_SUPPORTED = 15
};

/* The attributes that mean something here, by their numbers in the public header. */
enum { SC_LT_DESC_COMPUTE, SC_LT_DESC_SCALE, SC_LT_DESC_POINTER_MODE, SC_LT_DESC_TRANS_A, SC_LT_DESC_TRANS_B };
enum { SC_LT_DESC_EPILOGUE = 7 };
enum {
  SC_LT_LAYOUT_TYPE,
  SC_LT_LAYOUT_ORDER,
  SC_LT_LAYOUT_ROWS,
  SC_LT_LAYOUT_COLUMNS,
  SC_LT_LAYOUT_LD,
  SC_LT_LAYOUT_BATCH
};

#define SC_LT_ATTRIBUTES_MAX 48

struct sc_lt_object {
  const uint8_t *sizes; /* in bytes, by attribute; 0: there is no such attribute */
  int64_t values[SC_LT_ATTRIBUTES_MAX];
};

enum sc_lt_status sc_lt_create(struct sc_lt_object **ret_object, const uint8_t *sizes);
enum sc_lt_status sc_lt_destroy(struct sc_lt_object *object);
/* sizes: of the kind of object that it must be. */
enum sc_lt_status sc_lt_set(struct sc_lt_object *object, const uint8_t *sizes, int attribute, const void *value,
                            size_t bytes);
enum sc_lt_status sc_lt_get(const struct sc_lt_object *object, const uint8_t *sizes, int attribute, void *ret_value,
                            size_t bytes, size_t *ret_bytes);

/* What objects there are, by their attributes. */
extern const uint8_t sc_lt_desc_sizes[SC_LT_ATTRIBUTES_MAX], sc_lt_layout_sizes[SC_LT_ATTRIBUTES_MAX];
extern const uint8_t sc_lt_preference_sizes[SC_LT_ATTRIBUTES_MAX];

#endif
