/*
 * public.h - what marks a function as one that the library exports. generate_simcuda.py finds them by this word at the
 * beginning of a line: the version script has exactly these names, and no refusal is made for them. A family of
 * functions that differ by little more than a type is a macro of its file, SC_DEFINE_..., used once a line with the
 * function's name first: those are found, too.
 */
#ifndef SC_PUBLIC_H
#define SC_PUBLIC_H

#define SC_PUBLIC __attribute__((visibility("default")))

#endif
