/*
 * processes.h - common to the hooks that report processes: translating pids, and reading lists of unknown length.
 */
#ifndef VG_ML_PROCESSES_H
#define VG_ML_PROCESSES_H
#include "nvml/slice.h"

/* The caller's pid for a pid of the real library (the host's or the caller's); 0: not a process of the slice. */
unsigned vg_ml_own_pid(const struct vg_attach_usage *usage, unsigned reported);
/* All entries of a list of the real library, however long it is; free() them if the result is SUCCESS. `ask` fills at
 * most *count entries and returns in it how many there are. */
typedef nvmlReturn_t (*vg_ml_ask)(const void *question, unsigned *count, void *ret_entries);
nvmlReturn_t vg_ml_all(vg_ml_ask ask, const void *question, size_t entry_bytes, unsigned *ret_count,
                       void **ret_entries);
/* The result for `found` entries where the caller has space for *count; *count becomes their number. */
nvmlReturn_t vg_ml_fitted(unsigned found, unsigned *count, const void *ret_entries);

#endif
