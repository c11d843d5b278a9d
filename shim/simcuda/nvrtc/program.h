/*
 * program.h - programs that are given to the compiler at run time: which kernels a source has (kernels.c), and the
 * interface of libnvrtc (nvrtc.c).
 */
#ifndef SC_NVRTC_PROGRAM_H
#define SC_NVRTC_PROGRAM_H
#include <stddef.h>

/* PTX with an empty entry for each kernel with a C name in a source; NULL: there is no memory. *ret_strange: a kernel
 * whose name a compiler would have to mangle, or there is no kernel at all. */
char *sc_nvrtc_find_kernels(const char *source, const char **ret_strange);

#endif
