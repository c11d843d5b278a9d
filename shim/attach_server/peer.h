/*
 * peer.h - what the kernel says about the process at the other end of a connection: its pid, uid and pidfd, whether it
 * is in the daemon's user namespace, and its cgroups. Nothing of it comes from the process's own messages.
 */
#ifndef VG_ATTACH_SERVER_PEER_H
#define VG_ATTACH_SERVER_PEER_H
#include <stdbool.h>
#include <stdint.h>

#define VG_CGROUPS_BYTES 8192

struct vg_peer {
  int32_t pid;
  uint32_t uid;
  int32_t pidfd;
  bool own_users;                 /* its user namespace is the daemon's: its uid is an account */
  char cgroups[VG_CGROUPS_BYTES]; /* text of /proc/PID/cgroup; only with_cgroups */
};

/* 0 with ret_peer->pidfd open, or -errno: it has ended, or cannot be identified from here. What was read by its pid was
 * read while it lived. */
int vg_peer_identify(int socket_fd, bool with_cgroups, struct vg_peer *ret_peer);
/* The user who is responsible for it: in a user namespace, where a user has many uids, the one who made the outermost
 * below ours. Its uid where that cannot be known. As vgpud/host/user_namespaces.py. */
uint32_t vg_peer_responsible_uid(const struct vg_peer *peer);
/*
 * The n-th cgroup path in the text of a /proc/PID/cgroup, in the order of vgpud/host/cgroups.py: version 2 first,
 * hierarchies without a controller last; "/" is left out, and " (deleted)" at the end. False: there are no more.
 */
bool vg_peer_cgroup(const char *text, int n, const char **ret_path, int *ret_length);

#endif
