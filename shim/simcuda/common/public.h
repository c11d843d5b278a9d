/*
 * public.h - what marks a function as one that the library exports. generate_simcuda.py finds them by this word at the
 * beginning of a line: the version script has exactly these names, and no refusal is made for them.
 */
#ifndef SC_PUBLIC_H
#define SC_PUBLIC_H

#define SC_PUBLIC __attribute__((visibility("default")))

#endif
