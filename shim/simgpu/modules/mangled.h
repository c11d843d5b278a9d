/*
 * mangled.h - what the mangled name of a kernel template of PyTorch says about its tensors: how many bytes it reads and
 * writes for an element. The names follow the Itanium C++ ABI. Called by amount.c, once a kernel.
 */
#ifndef VG_SIM_MANGLED_H
#define VG_SIM_MANGLED_H

/* The first type of a number among the template's arguments, in bytes; 4 where there is none. */
double sim_mangled_type_bytes(const char *name);
/* Of an elementwise kernel: the bytes of an element of each of its tensors, those that are read and the results. */
double sim_mangled_tensor_bytes(const char *name);
/* Of a kernel for lists of tensors (multi_tensor_apply): the same for an element of each list. */
double sim_mangled_list_bytes(const char *name);

#endif
