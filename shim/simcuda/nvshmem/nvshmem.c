/*
 * nvshmem.c - NVSHMEM on the simulated device is never initialized: what answers with pointers and states says so in
 * their own terms, every other name is refused (generated).
 */
#include "simcuda/common/public.h"
#include "simcuda/common/refuse.h"
#include <stddef.h>

#define LIBRARY "libnvshmem_host.so.3"

void *nvshmem_malloc(size_t bytes);
SC_PUBLIC void *nvshmem_malloc(size_t bytes) {
  static unsigned count;
  (void)bytes;
  sc_tell_refusal(LIBRARY, "nvshmem_malloc", &count);
  return NULL;
}

void *nvshmem_ptr(const void *destination, int rank);
SC_PUBLIC void *nvshmem_ptr(const void *destination, int rank) {
  (void)destination, (void)rank;
  return NULL; /* no other rank's memory can be reached */
}

void *nvshmemx_mc_ptr(int team, const void *destination);
SC_PUBLIC void *nvshmemx_mc_ptr(int team, const void *destination) {
  (void)team, (void)destination;
  return NULL;
}

int nvshmemid_init_status(void);
SC_PUBLIC int nvshmemid_init_status(void) {
  return 0;
}

void nvshmem_info_get_version(int *ret_major, int *ret_minor);
SC_PUBLIC void nvshmem_info_get_version(int *ret_major, int *ret_minor) {
  if (ret_major != NULL) *ret_major = 0;
  if (ret_minor != NULL) *ret_minor = 0;
}

int nvshmem_team_n_pes(int team);
SC_PUBLIC int nvshmem_team_n_pes(int team) {
  (void)team;
  return -1; /* no team */
}
