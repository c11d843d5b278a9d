/*
 * attach_server.h - the daemon's thread that answers programs which attach, without the interpreter. build_shim.py
 * hands this file to cffi (after arbiter/arbiter.h). Python gives it the sockets that it listens on and rules: which
 * users may attach to which slice, and how many more of them. Whatever the rules do not decide, the thread hands over
 * to Python with the message unread. Python learns of each attachment afterwards, from the same queue, and may end it.
 *
 * All calls may come from any thread and never wait for a peer. Calls return 0 or a negative errno.
 */
#ifndef VG_ATTACH_SERVER_H
#define VG_ATTACH_SERVER_H
#include <stdint.h>

#include "abi/vg_abi.h"
#include "arbiter/arbiter.h"

/* ---- the pages of a process ---- */

struct vg_tenant_pages {
  struct vg_control_header *control; /* 1 + device_count pages; NULL: freed, or never made */
  struct vg_report_header *report;   /* mapped for reading */
  uint32_t device_count;
  int32_t locked;                /* both are kept in RAM; 0: RLIMIT_MEMLOCK did not allow it */
  int32_t control_fd, report_fd; /* -1 once they were sent */
  int32_t bells[VG_DEVICES_MAX]; /* eventfds, one per device */
};

/* Sealed memory files: the control pages are mapped for writing here and can be so nowhere else. */
int vg_tenant_pages_make(struct vg_tenant_pages *ret_pages, uint32_t device_count, uint32_t mode);
void vg_tenant_pages_sent(struct vg_tenant_pages *pages); /* the process has the files: the mappings suffice */
void vg_tenant_pages_free(struct vg_tenant_pages *pages); /* no arbiter may know them any more */

/* ---- rules ---- */

/* Places that all users share, as vgpud/core/slices/bounds.py counts them: how many are free, and how many of these may
 * go to users who have more than a small part of the table. */
struct vg_attach_server_table {
  int64_t free;
  int64_t free_for_large;
};

/* What one user may still have of a table, and how much of it counts as a small part. */
struct vg_attach_server_user {
  uint32_t table; /* index into tables[] */
  int64_t free;
  int64_t small;
};

struct vg_attach_server_draw {
  uint32_t user; /* index into users[] */
  uint32_t cost;
};

#define VG_ATTACH_SERVER_DRAWS_MAX 18 /* of the slice, of each of its devices, of the daemon's descriptors */
/* An account that may attach to a slice. */
struct vg_attach_server_entry {
  uint64_t account; /* a uid, or what Python calls a container: beyond 32 bits */
  uint32_t slice;   /* index into slices[] */
  uint32_t listener;
  uint32_t draw_count;
  struct vg_attach_server_draw draws[VG_ATTACH_SERVER_DRAWS_MAX];
};

struct vg_attach_server_slice {
  uint64_t slice_id;                           /* as the arbiters call it */
  struct vg_attach_reply reply;                /* all of it but process_id */
  struct vg_arbiter *arbiters[VG_DEVICES_MAX]; /* of reply.devices[] */
};

/* Programs in this cgroup, or below it, count for this account, whatever their uid. */
struct vg_attach_server_container {
  uint64_t account;
  const char *cgroup;
};

struct vg_attach_server_rules {
  uint32_t table_count, user_count, entry_count, slice_count, container_count;
  const struct vg_attach_server_table *tables;
  const struct vg_attach_server_user *users;
  const struct vg_attach_server_entry *entries;
  const struct vg_attach_server_slice *const *slices;
  const struct vg_attach_server_container *containers;
};

/* Connections whose message has not arrived: of all users and of one (fewer where descriptors are few), and when they
 * are closed. */
#define VG_WAITING_MAX 4096
#define VG_WAITING_SILENT_SHARE_MAX 256
#define VG_WAITING_SILENT_NS 2000000000

/* ---- news for Python ---- */

#define VG_ATTACH_SERVER_ATTACHED 1 /* the process has its answer and its pages */
#define VG_ATTACH_SERVER_HANDED 2   /* Python decides: only listener, socket_fd and account are set */
#define VG_ATTACH_SERVER_FAULT 3    /* accept() failed with this error; tried again a moment later */
#define VG_ATTACH_SERVER_CLOSED 4   /* one of an account's connections (count) that had sent nothing was closed */
struct vg_attach_server_news {
  uint32_t kind;
  uint32_t listener;
  int32_t socket_fd;
  int32_t error;
  uint32_t count;
  int32_t pid;
  uint32_t uid;
  int32_t pidfd;
  uint32_t library_copy;
  uint64_t process_id;
  uint64_t account;
  uint64_t slice_id;
  char program[VG_NAME_BYTES]; /* as the process wrote it */
  struct vg_tenant_pages pages;
};

struct vg_attach_server; /* opaque */

struct vg_attach_server *vg_attach_server_new(uint64_t first_process_id); /* starts the thread; NULL: errno says why */
/* Stops and joins the thread; news can still be taken. */
void vg_attach_server_stop(struct vg_attach_server *server);
void vg_attach_server_free(struct vg_attach_server *server); /* closes what is left in the queue */

int vg_attach_server_news_fd(const struct vg_attach_server *server); /* readable while there may be news */
/* Takes the oldest; returns 1, or 0 when there is none. All descriptors in it are the caller's. */
int vg_attach_server_take(struct vg_attach_server *server, struct vg_attach_server_news *ret_news);

/* Accepts from a listening, non-blocking SEQPACKET socket until vg_attach_server_unlisten(). The socket stays the
 * caller's.
 */
int vg_attach_server_listen(struct vg_attach_server *server, int fd, uint32_t *ret_listener);
void vg_attach_server_unlisten(struct vg_attach_server *server, uint32_t listener);
/* Replaces all rules; NULL: none, everything is handed over. What was admitted and is not taken counts for the new
 * ones. */
int vg_attach_server_load(struct vg_attach_server *server, const struct vg_attach_server_rules *rules);
/* From lock to unlock nothing is admitted. May be nested. */
void vg_attach_server_lock(struct vg_attach_server *server);
void vg_attach_server_unlock(struct vg_attach_server *server);
/* A process with a connection that Python admitted: its further ones are Python's, too. */
void vg_attach_server_know(struct vg_attach_server *server, int32_t pid);
void vg_attach_server_forget(struct vg_attach_server *server, int32_t pid); /* one of its connections has ended */
uint64_t vg_attach_server_next_id(struct vg_attach_server *server);         /* a process_id, never given twice */

#endif
