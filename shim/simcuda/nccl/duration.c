/*
 * duration.c - how long operations take: the bytes that each rank has to pass on over its link, as NCCL's tests count
 * them for their "bus bandwidth" (nccl-tests), at the part of the link's speed that is reached, and
 * what any operation takes. The link is that of the device's data sheet: NVLink of the boards that have it, else PCIe.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "simcuda/common/driver.h"
#include "simcuda/nccl/launch.h"
#include <stdlib.h>
#include <string.h>

#define LINK_PART 0.8             /* [assumed] of a link's speed in one direction that large operations reach */
#define FIRST_NS 6000.0           /* [assumed] an operation of two ranks without bytes */
#define EACH_RANK_NS 1000.0       /* [assumed] and for each rank more */
#define LOCAL_BYTES_PER_NS 2000.0 /* [assumed] a copy on the device */

/* Bytes per nanosecond in one direction, by a word of the device's name. */
static const struct {
  const char *name;
  double bytes_per_ns;
} links[] = {
    {"PCIe", 50},                 /* [published] PCIe 5.0 x16, less its losses, before boards of the same names */
    {"PCIE", 25},  {"NVL", 300},  /* [published] H100 NVL data sheet: 600 GB/s in both directions */
    {"H200", 450},                /* [published] data sheets of the H200 and H100 SXM: 900 GB/s in both directions */
    {"H100", 450}, {"A100", 300}, /* [published] A100 data sheet: 600 GB/s in both directions */
};

double sc_find_link(CUdevice device) {
  const char *set = secure_getenv("VGPU_SIM_NCCL_LINK_GB_S");
  char name[128] = "";
  double wanted = set != NULL ? strtod(set, NULL) : 0;
  if (wanted > 0 && wanted < 1e6) return wanted;
  sc_driver()->cuDeviceGetName(name, sizeof name, device);
  for (unsigned i = 0; i < sizeof links / sizeof *links; i++)
    if (strstr(name, links[i].name) != NULL) return links[i].bytes_per_ns;
  return 25; /* PCIe 4.0 x16 */
}

/* How often each rank passes the bytes of the whole operation on. */
static double passes(const struct sc_operation *operation) {
  double ranks = operation->comm->rank_count;
  switch (operation->kind) {
  case SC_ALL_REDUCE:
    return 2 * (ranks - 1) / ranks;
  case SC_ALL_GATHER:
  case SC_REDUCE_SCATTER:
  case SC_ALL_TO_ALL:
  case SC_GATHER:
  case SC_SCATTER:
    return ranks - 1; /* of what the call counts: the part of one rank */
  default:
    return 1;
  }
}

uint64_t sc_duration_ns(const struct sc_operation *operation) {
  const struct ncclComm *comm = operation->comm;
  double bytes = (double)operation->count * (double)sc_element_bytes(operation->type);
  if (comm->rank_count == 1) return (uint64_t)(FIRST_NS / 2 + bytes / LOCAL_BYTES_PER_NS);
  double link = comm->link_bytes_per_ns * LINK_PART;
  return (uint64_t)(FIRST_NS + EACH_RANK_NS * (comm->rank_count - 2) + bytes * passes(operation) / link);
}
