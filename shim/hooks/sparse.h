/*
 * sparse.h - memory that is mapped into arrays.
 */
#ifndef VG_HOOK_SPARSE_H
#define VG_HOOK_SPARSE_H
#include <stdint.h>

void vg_sparse_gone(uint64_t array); /* the array is destroyed: nothing is mapped into it any more */
void vg_sparse_forked_child(void);

#endif
