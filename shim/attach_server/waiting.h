/*
 * waiting.h - accepted connections that wait: for their message, until they are closed, or for Python, which answers
 * what the thread does not. Python takes about a millisecond for each and more on a busy host, so that an account's may
 * fill neither its queue nor the places here, and programs that the thread can answer do not wait behind them.
 *
 * An account is a container, a user, or the user who made a user namespace. One that may attach through a listener may
 * have many programs that start at once: where it has enough that wait, the others stay in the listener's backlog.
 * Others' connections beyond their share are closed.
 */
#ifndef VG_ATTACH_SERVER_WAITING_H
#define VG_ATTACH_SERVER_WAITING_H
#include <stdbool.h>
#include <stdint.h>

#include "attach_server/attach_server.h"
#include "attach_server/peer.h"

struct vg_attach_server;

struct vg_waiting_connection {
  int fd; /* -1: free */
  uint32_t listener;
  bool has_message; /* for Python */
  uint64_t account;
  uint64_t since_ns; /* when it was accepted, or had its message */
};

struct vg_waiting {
  struct vg_waiting_connection connections[VG_WAITING_MAX];
  uint32_t count, count_with_message, max; /* at most VG_WAITING_MAX */
  uint32_t share, silent_share;            /* of max, for one account: with a message, and without */
  uint32_t end;                            /* behind the last that is taken */
  uint32_t last_listener;                  /* of the last one that was handed over */
  uint64_t news_ns;                        /* when Python heard of a user who has too many */
};

void vg_waiting_init(struct vg_waiting *waiting);
void vg_waiting_free(struct vg_waiting *waiting); /* closes them */
/* Take the descriptor, of a connection without a message, or of one whose message is for Python. peer: NULL where the
 * process cannot be identified. Lock by themselves. */
void vg_waiting_add_silent(struct vg_attach_server *server, uint32_t listener, int fd, const struct vg_peer *peer);
void vg_waiting_add_for_python(struct vg_attach_server *server, uint32_t listener, int fd, const struct vg_peer *peer);
/* The rest is locked, under attach_server.c's mutex. Takes a silent one out, which may have its message now: its
 * descriptor, which is the caller's. -1: there is none. */
int vg_waiting_take_silent(struct vg_attach_server *server, uint32_t index, uint32_t *ret_listener);
/* Gives Python those that it may have now, and closes those that have been silent for too long. Returns when to call
 * again; UINT64_MAX: when Python has taken news. */
uint64_t vg_waiting_advance(struct vg_attach_server *server, uint64_t now_ns);

#endif
