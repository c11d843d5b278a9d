/* table.h - every entry point, for those that look one up by name; defined in gen/simgpu/simgpu_entries.c. */
#ifndef VG_SIM_TABLE_H
#define VG_SIM_TABLE_H
#include "gen/abi/entries.h"

/* What a program that looks a name up is given, by enum vg_entry, which is sorted by name (strcmp). */
extern void *const vg_sim_entry_points[VG_ENTRY_COUNT];

#endif
