/*
 * map.h - addresses of the process, and the file that device memory is made of: map.c, arena.c.
 */
#ifndef VG_SIM_MAP_H
#define VG_SIM_MAP_H
#include "simgpu/process/process.h"

/* Addresses that begin at a multiple of alignment, a power of two; NULL: none left. */
char *sim_reserve_aligned(uint64_t bytes, uint64_t alignment, int protection);
char *sim_reserve_bytes(uint64_t bytes, int protection); /* addresses, 2 MiB aligned; NULL: none left */
#define SIM_READ_WRITE 3                                 /* PROT_READ | PROT_WRITE */
void *sim_map_bytes(uint64_t bytes); /* lazily backed, zeroed, 2 MiB aligned; NULL: no address space */
void sim_unmap_bytes(void *map, uint64_t bytes);

/* Device memory that is not charged: whole granules. NULL: no address space. */
char *sim_map_device(uint64_t bytes);
char *sim_map_device_low(uint64_t bytes);         /* below 4 GiB */
void sim_clear_device(void *map, uint64_t bytes); /* its pages go back to the host; it reads as zero */
void sim_unmap_device(void *map, uint64_t bytes);

/* ---- arena.c ---- */

int sim_arena_fd(void);                  /* -1: there cannot be one */
bool sim_arena_is_own(int arena_fd);     /* or another process's */
uint64_t sim_arena_take(uint64_t bytes); /* an offset for physical memory */
bool sim_arena_place(int arena_fd, uint64_t offset, void *place, uint64_t bytes, int protection);

#endif
