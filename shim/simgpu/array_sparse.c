/*
 * array_sparse.c - arrays without memory of their own: how they are divided into tiles. Called by programs and array.c.
 */
#include "array.h"

void sim_array_unmap_all(struct sim_array *array) {
  (void)array;
}
