/*
 * memory_pages.h - memory in the tenants' pages, beside pages.h: what memory.c decides on is read from there, and
 * written.
 */
#ifndef VG_ARBITER_MEMORY_PAGES_H
#define VG_ARBITER_MEMORY_PAGES_H
#include "arbiter/state.h"

/* Host memory that a process has pinned, by its page. */
uint64_t vg_pages_pinned_bytes(const struct vg_process *process);
/* One process's account of memory as of now, between its turns. */
void vg_pages_read_memory(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns);
/* Decides about memory and publishes what has changed. */
void vg_pages_memory(struct vg_arbiter *arbiter, uint64_t now_ns);
/* Of a new process, which holds nothing. */
void vg_pages_begin_memory(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t now_ns);

#endif
