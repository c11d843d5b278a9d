/*
 * refuse.h - functions that programs import and the simulated device has not: each says so once on standard error and
 * answers "not supported" in its library's own numbers. Used by what generate_simcuda.py makes.
 */
#ifndef SC_REFUSE_H
#define SC_REFUSE_H
#include "simcuda/common/public.h"

/* Says once that a library has no such function. count: how often it was called, of the caller. */
void sc_tell_refusal(const char *library, const char *function, unsigned *count);

#define SC_REFUSE(library, name, status)                                                                               \
  SC_PUBLIC int name(void);                                                                                            \
  SC_PUBLIC int name(void) {                                                                                           \
    static unsigned count;                                                                                             \
    sc_tell_refusal(library, #name, &count);                                                                           \
    return status;                                                                                                     \
  }

#endif
