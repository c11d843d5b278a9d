/*
 * processes.h - what the hooks that tell of processes have in common: whose pid it is, and how much fits.
 */
#ifndef VG_ML_PROCESSES_H
#define VG_ML_PROCESSES_H
#include "nvml/slice.h"

/* The caller's pid for one that the real library told (the host's or the caller's); 0: it is none of the slice's. */
unsigned vg_ml_own_pid(const struct vg_attach_usage *usage, unsigned told);
/* All entries of a list of the real library, however long it is; free() them if the result is SUCCESS. `ask` asks it:
 * fills *count entries, or says how many there are. */
typedef nvmlReturn_t (*vg_ml_ask)(const void *question, unsigned *count, void *ret_entries);
nvmlReturn_t vg_ml_all(vg_ml_ask ask, const void *question, size_t entry_bytes, unsigned *ret_count,
                       void **ret_entries);
/* What the caller is told of so many entries in so much room; *count becomes their number. */
nvmlReturn_t vg_ml_fitted(unsigned found, unsigned *count, const void *ret_entries);

#endif
