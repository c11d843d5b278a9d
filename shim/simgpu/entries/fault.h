/*
 * fault.h - faults on request, and counts of calls, for tests of what uses the driver. Every entry point asks here
 * before its body runs (gen/simgpu/simgpu_entries.c), so what one entry point calls of another is not counted.
 *
 *   VGPU_SIM_FAIL=NAME:N=CODE[,...]   the N-th call (from 1; *: each) of NAME answers CODE and does nothing. NAME
 *                                     without version or per-thread suffix means all forms; * any entry point, its
 *                                     calls counted together. CODE: a number or the name of a CUresult.
 *                                     An error that contexts keep (process/sticky.c: 700, 710, 719) at a launch or
 *                                     at a wait: the current context has it from then on.
 *   VGPU_SIM_COUNT_CALLS=FILE         at exit: a line per entry point that was called, name and number of calls.
 *
 * A forked child inherits both, with the counts so far. A request that is not understood is reported on standard error,
 * and the process ends: a test that injects nothing would pass.
 */
#ifndef VG_SIM_FAULT_H
#define VG_SIM_FAULT_H
#include "base/prim.h"
#include "gen/abi/cuda_abi.h"
#include "gen/abi/entries.h"
#include "simgpu/entries/before_init.h"
#include "simgpu/process/started.h"
#include <stdbool.h>

#define SIM_NO_FAULT (-1)
extern uint32_t sim_faults; /* 0: nothing was asked for; not known before the first call */
/* Counts a call. Returns SIM_NO_FAULT, or the code that it answers instead of running. */
int sim_fault(enum vg_entry entry);

/* What an entry point does: a planned fault, else what it answers before cuInit (entries/before_init.h), else its body.
 */
#define SIM_ENTRY(name, arguments)                                                                                     \
  if (!VG_LIKELY(!VG_LOAD_RELAXED(&sim_faults))) {                                                                     \
    int code = sim_fault(VG_ENTRY_##name);                                                                             \
    if (code != SIM_NO_FAULT) return (CUresult)code;                                                                   \
  }                                                                                                                    \
  do {                                                                                                                 \
    if (VG_LIKELY(sim_is_started())) break;                                                                            \
    SIM_BEFORE(name)                                                                                                   \
    return CUDA_ERROR_NOT_INITIALIZED;                                                                                 \
  } while (0);                                                                                                         \
  return sim_##name arguments

/* The same of one that a locked process is answered. */
#define SIM_ENTRY_ASKS(name, arguments)                                                                                \
  sim_asks++;                                                                                                          \
  sim_caller = __builtin_return_address(0);                                                                            \
  CUresult sim_answer = sim_entry_##name arguments;                                                                    \
  sim_asks--;                                                                                                          \
  return sim_answer

#endif
