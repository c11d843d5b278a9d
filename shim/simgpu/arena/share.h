/*
 * share.h - what several processes hold. The server keeps it under a key, with its holders, and charges the first of
 * these; the last holder that lets go drops the contents.
 */
#ifndef VG_SIM_SHARE_H
#define VG_SIM_SHARE_H
#include "simgpu/arena/allocations.h"

struct sim_share {
  uint64_t key;
  enum sim_share_kind kind;
  int device;   /* the server's index */
  bool charged; /* device memory that the maker has been charged for */
  uint64_t bytes;
  uint64_t offset; /* in the arena of its maker */
  uint64_t tag;    /* of its kind */
  int fd;          /* that arena */
};
CUresult sim_share_make(struct sim_share *share); /* of this process's arena; its key is filled in */
CUresult sim_share_open(uint64_t key, enum sim_share_kind kind, struct sim_share *ret_share); /* the caller closes fd */
void sim_share_close(const struct sim_share *share);  /* one hold less; its maker or opener; does not close fd */
CUresult sim_share_ticket(uint64_t key, int *ret_fd); /* a descriptor that holds it, for other processes */
bool sim_share_ticket_key(int ticket, uint64_t *ret_key);
/* The memory of [base, base + bytes), which sim_map_charged() made, shared from now on: the same one each time. */
CUresult sim_share_memory(int device, void *base, uint64_t bytes, uint64_t *ret_key);
bool sim_share_leave(void *base, uint64_t bytes); /* the maker frees such memory; false: it is not shared */
/* Where a pointer may be mapped from: the unit of sharing around it. */
void sim_share_unit(const struct sim_allocation *allocation, uint64_t *ret_base, uint64_t *ret_bytes);

#endif
