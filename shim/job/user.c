/* user.c - the change to the job's user. Called by child.c, and by terminal.c for an engine's client. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <grp.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAPABILITY_VERSION_3 0x20080522u

/* Also those that a parent of ours has arranged to be kept over a change of user. */
static int drop_capabilities(void) {
  struct {
    uint32_t version;
    int pid;
  } header = {CAPABILITY_VERSION_3, 0};
  uint32_t none[6] = {0};
  return syscall(SYS_capset, &header, none) ? errno : 0;
}

/* For good: going back is tried, and must fail. */
int vj_become_user(const struct vj_launch *launch) {
  bool is_root = !geteuid();
  if (!is_root && (launch->uid != geteuid() || launch->gid != getegid())) return EPERM;
  if (is_root && setgroups(launch->group_count, launch->groups)) return errno;
  if (setresgid(launch->gid, launch->gid, launch->gid)) return errno;
  if (setresuid(launch->uid, launch->uid, launch->uid)) return errno;
  int error = launch->uid ? drop_capabilities() : 0;
  if (error) return error;
  if (launch->uid && (!setuid(0) || !setresuid((uid_t)-1, 0, (uid_t)-1))) return EPERM;
  if (getuid() != launch->uid || geteuid() != launch->uid || getgid() != launch->gid || getegid() != launch->gid)
    return EPERM;
  return 0;
}
