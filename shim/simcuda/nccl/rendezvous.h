/*
 * rendezvous.h - how the ranks of a communicator find each other by its unique id (rendezvous.c).
 */
#ifndef SC_NCCL_RENDEZVOUS_H
#define SC_NCCL_RENDEZVOUS_H
#include "simcuda/nccl/area.h"

#define SC_TOKEN_BYTES 16

/* What makes a unique id unique. */
struct sc_token {
  uint8_t bytes[SC_TOKEN_BYTES];
};

/* False: it was not made by ncclGetUniqueId. */
bool sc_token_read(const ncclUniqueId *id, struct sc_token *ret_token);
ncclResult_t sc_token_make(struct sc_token *ret_token);
/* That of a communicator that is made of another one: all ranks that know both numbers make the same. */
struct sc_token sc_token_derive(const struct sc_token *token, uint64_t number);

/* compute_bytes: of rank 0, for the area. Waits until all ranks have come; then the area is mapped, and *ret_fd is its
 * file. Any thread; the ranks of a process come by different threads. */
ncclResult_t sc_rendezvous(const struct sc_token *token, uint32_t rank, uint32_t rank_count, uint64_t compute_bytes,
                           struct sc_area **ret_area, int *ret_fd);

#endif
