/* attributes.c - see attributes.h; and the functions of programs that make, set, read and destroy such objects. */
#include "simcuda/cublaslt/attributes.h"
#include <stdlib.h>
#include <string.h>

/* Sizes of the values in the order of the public header's numbers; numbers that it leaves out have none. */
const uint8_t sc_lt_desc_sizes[SC_LT_ATTRIBUTES_MAX] = {
    4, 4, 4, 4, 4, 4, 4, 4, 8, 0,       /* types, pointer mode, transpositions, fill, epilogue, bias */
    8, 8, 8, 8, 8, 4, 0, 8, 8, 8,       /* strides and what epilogues keep, SMs, scales */
    8, 8, 4, 8, 8, 1, 4, 0, 0, 0, 0,    /* largest value, types and scales of epilogues */
    4, 4, 4, 4, 4, 8, 4, 8, 8, 8, 4, 0, /* modes of scales, emulation, strides of alpha and beta */
};
const uint8_t sc_lt_layout_sizes[SC_LT_ATTRIBUTES_MAX] = {4, 4, 8, 8, 8, 4, 8, 8, 4};
const uint8_t sc_lt_preference_sizes[SC_LT_ATTRIBUTES_MAX] = {4, 8, 0, 4, 0, 4, 4, 4, 4, 4, 0, 0, 8, 8, 8, 8};

enum sc_lt_status sc_lt_create(struct sc_lt_object **ret_object, const uint8_t *sizes) {
  if (ret_object == NULL) return SC_LT_INVALID_VALUE;
  *ret_object = calloc(1, sizeof **ret_object);
  if (*ret_object == NULL) return SC_LT_ALLOC_FAILED;
  (*ret_object)->sizes = sizes;
  return SC_LT_SUCCESS;
}

enum sc_lt_status sc_lt_destroy(struct sc_lt_object *object) {
  free(object);
  return SC_LT_SUCCESS;
}

/* Its size, or 0 for what the object has not. */
static size_t size_of(const struct sc_lt_object *object, const uint8_t *sizes, int attribute) {
  if (object == NULL || object->sizes != sizes || attribute < 0 || attribute >= SC_LT_ATTRIBUTES_MAX) return 0;
  return sizes[attribute];
}

enum sc_lt_status sc_lt_set(struct sc_lt_object *object, const uint8_t *sizes, int attribute, const void *value,
                            size_t bytes) {
  size_t size = size_of(object, sizes, attribute);
  if (size == 0 || value == NULL || bytes != size) return SC_LT_INVALID_VALUE;
  object->values[attribute] = 0;
  memcpy(&object->values[attribute], value, size); /* little-endian: the low bytes */
  return SC_LT_SUCCESS;
}

enum sc_lt_status sc_lt_get(const struct sc_lt_object *object, const uint8_t *sizes, int attribute, void *ret_value,
                            size_t bytes, size_t *ret_bytes) {
  size_t size = size_of(object, sizes, attribute);
  if (size == 0 || (bytes != 0 && (ret_value == NULL || bytes < size))) return SC_LT_INVALID_VALUE;
  if (bytes == 0 && ret_bytes == NULL) return SC_LT_INVALID_VALUE;
  if (bytes != 0) memcpy(ret_value, &object->values[attribute], size);
  if (ret_bytes != NULL) *ret_bytes = size;
  return SC_LT_SUCCESS;
}

SC_PUBLIC enum sc_lt_status cublasLtMatmulDescCreate(struct sc_lt_object **ret_desc, int compute_type, int scale_type) {
  enum sc_lt_status status = sc_lt_create(ret_desc, sc_lt_desc_sizes);
  if (status != SC_LT_SUCCESS) return status;
  (*ret_desc)->values[SC_LT_DESC_COMPUTE] = compute_type;
  (*ret_desc)->values[SC_LT_DESC_SCALE] = scale_type;
  (*ret_desc)->values[SC_LT_DESC_EPILOGUE] = 1; /* none */
  return SC_LT_SUCCESS;
}

SC_PUBLIC enum sc_lt_status cublasLtMatrixLayoutCreate(struct sc_lt_object **ret_layout, int type, uint64_t rows,
                                                       uint64_t columns, int64_t ld) {
  if (rows > INT64_MAX || columns > INT64_MAX) return SC_LT_INVALID_VALUE;
  enum sc_lt_status status = sc_lt_create(ret_layout, sc_lt_layout_sizes);
  if (status != SC_LT_SUCCESS) return status;
  int64_t *values = (*ret_layout)->values;
  values[SC_LT_LAYOUT_TYPE] = type;
  values[SC_LT_LAYOUT_ROWS] = (int64_t)rows;
  values[SC_LT_LAYOUT_COLUMNS] = (int64_t)columns;
  values[SC_LT_LAYOUT_LD] = ld;
  values[SC_LT_LAYOUT_BATCH] = 1;
  return SC_LT_SUCCESS;
}

SC_PUBLIC enum sc_lt_status cublasLtMatmulPreferenceCreate(struct sc_lt_object **ret_preference) {
  return sc_lt_create(ret_preference, sc_lt_preference_sizes);
}

#define SC_DEFINE_DESTROY(name)                                                                                        \
  SC_PUBLIC enum sc_lt_status name(struct sc_lt_object *object) {                                                      \
    return sc_lt_destroy(object);                                                                                      \
  }
SC_DEFINE_DESTROY(cublasLtMatmulDescDestroy)
SC_DEFINE_DESTROY(cublasLtMatrixLayoutDestroy)
SC_DEFINE_DESTROY(cublasLtMatmulPreferenceDestroy)

#define SC_DEFINE_SET(name, sizes)                                                                                     \
  SC_PUBLIC enum sc_lt_status name(struct sc_lt_object *object, int attribute, const void *value, size_t bytes) {      \
    return sc_lt_set(object, sizes, attribute, value, bytes);                                                          \
  }
SC_DEFINE_SET(cublasLtMatmulDescSetAttribute, sc_lt_desc_sizes)
SC_DEFINE_SET(cublasLtMatrixLayoutSetAttribute, sc_lt_layout_sizes)
SC_DEFINE_SET(cublasLtMatmulPreferenceSetAttribute, sc_lt_preference_sizes)

#define SC_DEFINE_GET(name, sizes)                                                                                     \
  SC_PUBLIC enum sc_lt_status name(const struct sc_lt_object *object, int attribute, void *ret_value, size_t bytes,    \
                                   size_t *ret_bytes) {                                                                \
    return sc_lt_get(object, sizes, attribute, ret_value, bytes, ret_bytes);                                           \
  }
SC_DEFINE_GET(cublasLtMatmulDescGetAttribute, sc_lt_desc_sizes)
SC_DEFINE_GET(cublasLtMatrixLayoutGetAttribute, sc_lt_layout_sizes)
SC_DEFINE_GET(cublasLtMatmulPreferenceGetAttribute, sc_lt_preference_sizes)
