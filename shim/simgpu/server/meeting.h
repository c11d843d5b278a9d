/*
 * meeting.h - kernels that run only together: which of them have entered the SMs' queue. meeting.c keeps the list,
 * meet.c decides when those of a meeting run.
 */
#ifndef VG_SIM_MEETING_H
#define VG_SIM_MEETING_H
#include "simgpu/server/server.h"

struct meeting {
  struct meeting *next;
  uint64_t group;    /* its name, or a process group */
  bool is_of_a_name; /* not a process group's */
  uint32_t number;
  uint32_t size;  /* how many it takes */
  uint32_t count; /* how many have entered the SMs' queue */
  struct stream *members[SIM_DEVICES_MAX];
  uint64_t left_ns;
};

extern struct meeting *meetings;

#endif
