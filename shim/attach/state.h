/* state.h - what attach.c (attach) and helper_thread.c (the helper thread) share; nobody else reads it. */
#ifndef VG_LINK_STATE_H
#define VG_LINK_STATE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/socket.h"
#include "session/session.h"

struct vg_link {
  pthread_mutex_t lock;     /* one attach at a time */
  pid_t pid;                /* the process this belongs to; another one: we are its forked child */
  bool configured;          /* path is set */
  bool contained;           /* by the folder that containers with a slice have, not by the environment */
  char path[108];           /* of the attach socket: sun_path's size */
  int socket_fd;            /* -1: none */
  uint64_t socket_identity; /* vg_wire_identity() of it */
  bool unplugged;           /* the program has closed the socket, but the pages live */
  bool helper_runs;
  bool gone[VG_DEVICES_MAX]; /* the gate was told vg_gate_daemon_gone() */
  uint64_t attached_ns;      /* when the pages in use came */
};

extern struct vg_link vg_link;

/* Sends a request over a new socket. With resume set: what the devices hold. 0 or -errno. */
int vg_link_ask(bool resume, int *ret_socket_fd);
/* Takes over the pages for devices that exist already (re-attach, late attach). */
void vg_link_adopt(const struct vg_wire_answer *answer, int socket_fd);
void vg_link_drop(struct vg_wire_answer *answer, int socket_fd); /* closes what came with it */
int vg_link_refusal(const struct vg_attach_reply *reply);        /* logs why; -errno as in attach.h, 0 when accepted */
int vg_link_helper_start(void);                                  /* 0 or -ENOMEM */
void vg_link_helper_forked_child(void);

#endif
