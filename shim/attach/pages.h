/*
 * pages.h - asks the daemon for a slice and takes over the pages that come with its answer: at the first attach
 * (attach.c), and when a daemon is there again (helper_thread.c).
 */
#ifndef VG_LINK_PAGES_H
#define VG_LINK_PAGES_H
#include "attach/socket.h"
#include "session/session.h"

/* Sends a request over a new socket; with resume set it has what the devices hold. 0 or -errno. */
int vg_link_ask(bool resume, int *ret_socket_fd);
int vg_link_refusal(const struct vg_attach_reply *reply);        /* logs why; -errno as in attach.h, 0 when accepted */
void vg_link_drop(struct vg_wire_answer *answer, int socket_fd); /* closes its descriptors */

/* The first attach, in this order: the session, each device (index: of its pages in the answer), and published. */
void vg_link_bind_session(const struct vg_wire_answer *answer, int socket_fd);
void vg_link_bind_device(struct vg_device *device, const struct vg_wire_answer *answer, uint32_t index);
void vg_link_publish_session(void);
/* All of it, for devices that exist already (re-attach, late attach). */
void vg_link_adopt(const struct vg_wire_answer *answer, int socket_fd);

#endif
