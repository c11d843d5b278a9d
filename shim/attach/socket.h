/*
 * socket.h - the attach socket: connect, ask, receive the answer with its descriptors and map the pages. Used by
 * pages.c and nvml/slice.c. Calls do not wait, vg_wire_wait() excepted: the caller polls. Calls return 0 or a negative
 * errno and leave nothing open behind.
 */
#ifndef VG_LINK_WIRE_H
#define VG_LINK_WIRE_H
#include <stdbool.h>
#include <stdint.h>

#include "abi/vg_abi.h"

struct vg_wire_answer {
  struct vg_attach_reply reply;            /* its texts end with a NUL */
  const struct vg_control_header *control; /* page 0; NULL unless reply.status is VG_ATTACH_OK */
  struct vg_report_header *report;
  int doorbell_fds[VG_DEVICES_MAX];
};

/* The attach socket of this program, NULL: it has no slice. In a container the container's own one, whatever the
 * environment says: an image's environment is not the user's. */
const char *vg_wire_path(bool *ret_contained);
/* A connected, non-blocking, close-on-exec socket that is not among descriptors 0 to 2. */
int vg_wire_connect(const char *path, int *ret_socket_fd);
int vg_wire_ask(int socket_fd, const struct vg_attach_request *request);
/* -EAGAIN: no answer yet. -ECONNRESET: the daemon closed the socket. -EPROTO: not an answer of vgpud.
 * -EPROTONOSUPPORT: another ABI version. 0: look at reply.status. */
int vg_wire_receive(int socket_fd, struct vg_wire_answer *ret_answer);
/* Waits until there is something to read, or deadline_ns (CLOCK_MONOTONIC) has passed. */
void vg_wire_wait(int socket_fd, uint64_t deadline_ns);
bool vg_wire_ended(int socket_fd); /* the daemon is gone, or the program has closed the descriptor */
/* Identifies the file behind a descriptor, to see when another file gets its number. 0: none. */
uint64_t vg_wire_identity(int fd);
/* Puts the file of new_fd behind the number old_fd, so that a thread about to write there writes to no other file. */
int vg_wire_replace(int old_fd, int new_fd); /* the number to use from now on */
const struct vg_control_device *vg_wire_control(const struct vg_control_header *header, uint32_t index);
struct vg_report_device *vg_wire_report(struct vg_report_header *header, uint32_t index);

#endif
