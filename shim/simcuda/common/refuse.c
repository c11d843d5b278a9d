/* refuse.c - see refuse.h. */
#include "simcuda/common/refuse.h"
#include <stdio.h>

void sc_tell_refusal(const char *library, const char *function, unsigned *count) {
  if (__atomic_fetch_add(count, 1, __ATOMIC_RELAXED) == 0)
    fprintf(stderr, "vgpu: the SIMULATED %s has no %s: the call is answered with \"not supported\"\n", library,
            function);
}
