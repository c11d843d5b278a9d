/* state.h - the state that attach.c, pages.c and helper_thread.c share; no other file reads it. */
#ifndef VG_LINK_STATE_H
#define VG_LINK_STATE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "session/session.h"

struct vg_link {
  pthread_mutex_t lock;     /* one attach at a time */
  pid_t pid;                /* the process this belongs to; another one: this is its forked child */
  bool configured;          /* path is set */
  bool contained;           /* configured by the directory that containers with a slice have, not by the environment */
  char path[108];           /* of the attach socket: sun_path's size */
  int socket_fd;            /* -1: none */
  uint64_t socket_identity; /* vg_wire_identity() of it */
  bool unplugged;           /* the program has closed the socket, but the pages are in use */
  bool helper_runs;
  bool gone[VG_DEVICES_MAX];        /* vg_gate_daemon_gone() was called */
  uint64_t refused_ns;              /* when the daemon did not answer for the first time; 0: it always has */
  uint64_t attached_ns;             /* when the pages in use were taken over */
  char refusal_text[VG_TEXT_BYTES]; /* of the last refusal, or "" */
};

extern struct vg_link vg_link;

int vg_link_helper_start(void); /* helper_thread.c; 0 or -EAGAIN */
void vg_link_helper_forked_child(void);

#endif
