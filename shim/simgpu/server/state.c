/*
 * state.c - what all files of vgpu-simd work on: one thread, one structure.
 */
#include "simgpu/server/server.h"

struct server server;
