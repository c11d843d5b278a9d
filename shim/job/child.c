/* child.c - a member's first process, from the fork to its program. Called by supervise.c.
 *
 * Steps that need root come first. Then the process becomes the user, with no way back, and opens every file (the
 * directory, the log, the program) as that user, so that a link in a path gives no access that the user does not have.
 * From the change of user until exec the kernel keeps the user from inspecting the process. PR_SET_NO_NEW_PRIVS stays
 * off: a job may use sudo, ping or newgrp as its user may elsewhere, which gives no privilege that the user does not
 * have; its processes stay in their cgroup, and we can kill those of root as well. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#define KEYCTL_JOIN_SESSION 1

enum step { STEP_LIMITS, STEP_USER, STEP_CWD, STEP_LOG, STEP_TERMINAL, STEP_EXEC, STEP_INTERPRETER };

struct failure {
  int step, error;
};

static void default_signals(void) {
  struct sigaction action = {.sa_handler = SIG_DFL};
  sigset_t none;
  for (int signal = 1; signal < NSIG; signal++) sigaction(signal, &action, NULL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static rlim_t lower(rlim_t a, rlim_t b) {
  return a < b ? a : b;
}

/* A limit above our own takes CAP_SYS_RESOURCE, which a daemon in a container may not have: then it is our own. */
static int set_limits(const struct vj_launch *launch) {
  for (int i = 0; i < (int)RLIM_NLIMITS; i++) {
    struct rlimit wanted = launch->limits[i], own;
    if (!launch->has_limit[i] || !setrlimit((__rlimit_resource_t)i, &wanted)) continue;
    if (errno != EPERM || getrlimit((__rlimit_resource_t)i, &own)) return errno;
    wanted.rlim_max = lower(wanted.rlim_max, own.rlim_max);
    wanted.rlim_cur = lower(wanted.rlim_cur, wanted.rlim_max);
    if (setrlimit((__rlimit_resource_t)i, &wanted)) return errno;
  }
  return 0;
}

/* An engine's client keeps our user; until its log is open it has the job's user's rights. */
static int borrow_user(const struct vj_launch *launch) {
  if (geteuid()) return launch->uid == geteuid() ? 0 : EPERM;
  if (setgroups(launch->group_count, launch->groups) || setegid(launch->gid) || seteuid(launch->uid)) return errno;
  return 0;
}

static int return_user(void) {
  umask(022); /* the user's umask is for the log, not for files of root's programs */
  if (getuid()) return 0;
  if (seteuid(0) || setegid(getgid()) || setgroups(0, NULL)) return errno;
  return 0;
}

static int open_log(const char *log, int null_fd, int flags) {
  return *log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC | flags, 0666) : null_fd;
}

static struct failure open_output(const char *log, int null_fd) {
  int fd = open_log(log, null_fd, 0);
  bool is_done = fd >= 0 && dup2(null_fd, 0) >= 0 && dup2(fd, 1) >= 0 && dup2(fd, 2) >= 0;
  return (struct failure){STEP_LOG, is_done ? 0 : errno};
}

/* The controlling terminal of this process, and its input and output; the log is its keeper's. */
static struct failure open_terminal(const struct vj_launch *launch, const char *log, int null_fd) {
  int master_fd, slave_fd, error;
  if (launch->terminal_fd < 0) return (struct failure){STEP_TERMINAL, -launch->terminal_fd};
  int log_fd = open_log(log, null_fd, O_NONBLOCK); /* a pipe that no process reads holds nothing up */
  if (log_fd < 0) return (struct failure){STEP_LOG, errno};
  if ((error = vj_terminal_open(&master_fd, &slave_fd))) return (struct failure){STEP_TERMINAL, error};
  if ((error = vj_terminal_keep(launch, master_fd, slave_fd, log_fd, null_fd)))
    return (struct failure){STEP_TERMINAL, error};
  close(master_fd);
  if (ioctl(slave_fd, TIOCSCTTY, 0)) return (struct failure){STEP_TERMINAL, errno};
  for (int fd = 0; fd < 3; fd++)
    if (dup2(slave_fd, fd) < 0) return (struct failure){STEP_TERMINAL, errno};
  return (struct failure){STEP_TERMINAL, 0};
}

static struct failure run(const struct vj_launch *launch, size_t member, int null_fd, pid_t supervisor) {
  const struct vj_member *self = &launch->members[member];
  int error;
  setsid();
  vj_write_file("/proc/self/oom_score_adj", "0");
  if ((error = set_limits(launch))) return (struct failure){STEP_LIMITS, error};
  if ((error = launch->is_client ? borrow_user(launch) : vj_become_user(launch)))
    return (struct failure){STEP_USER, error};
  /* Should the supervisor be killed, at least the first process goes with it; a change of user clears this. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != supervisor) return (struct failure){STEP_USER, ESRCH};
  /* A session keyring of its own instead of the daemon's; a kernel without keyrings is no failure. */
  syscall(SYS_keyctl, KEYCTL_JOIN_SESSION, NULL);
  umask(launch->umask);
  if (!launch->is_client && chdir(launch->cwd)) return (struct failure){STEP_CWD, errno};
  default_signals();
  struct failure opened =
      launch->has_terminal ? open_terminal(launch, self->log, null_fd) : open_output(self->log, null_fd);
  if (opened.error) return opened;
  if (launch->is_client && (error = return_user())) return (struct failure){STEP_USER, error};
  environ = self->env; /* execvp searches its PATH */
  execvp(*self->argv, self->argv);
  error = errno;
  bool is_there = error == ENOENT && strchr(*self->argv, '/') && !access(*self->argv, F_OK);
  return (struct failure){is_there ? STEP_INTERPRETER : STEP_EXEC, error};
}

/* In the child: waits until it is in its cgroups, and runs. */
static _Noreturn void child(const struct vj_launch *launch, size_t member, int null_fd, pid_t supervisor, int go_fd,
                            int failure_fd) {
  char go;
  if (read(go_fd, &go, 1) == 1) {
    struct failure failure = run(launch, member, null_fd, supervisor);
    vj_write_all(failure_fd, (const char *)&failure, sizeof failure);
  }
  _exit(VJ_CODE_NOT_RUNNABLE);
}

pid_t vj_child_start(const struct vj_launch *launch, const struct vj_cgroups *cgroups, size_t member, int null_fd,
                     int *ret_failure_fd) {
  int failure[2], go[2];
  if (pipe2(failure, O_CLOEXEC)) return -errno;
  if (pipe2(go, O_CLOEXEC)) {
    int error = errno;
    close(failure[0]);
    close(failure[1]);
    return -error;
  }
  pid_t supervisor = getpid(), pid = fork();
  if (!pid) {
    close(failure[0]);
    close(go[1]);
    child(launch, member, null_fd, supervisor, go[0], failure[1]);
  }
  int error = pid < 0 ? -errno : vj_cgroups_enter(cgroups, member, pid);
  if (!error) error = vj_write_all(go[1], "g", 1);
  close(go[0]);
  close(go[1]);
  close(failure[1]);
  if (!error) {
    *ret_failure_fd = failure[0];
    return pid;
  }
  close(failure[0]); /* the child, if there is one, ends by itself and is reaped like an orphan */
  return error;
}

static int exec_failure(const char *name, int error, char *text) {
  bool is_path = strchr(name, '/');
  if (error == ENOENT || error == ENOTDIR) {
    vj_say(text, 0, "command '%.200s' not found: check the %s", name, is_path ? "path" : "name and PATH");
    return VJ_CODE_NOT_FOUND;
  }
  vj_say(text, 0, "cannot execute '%.200s': %s", name, strerror(error));
  return VJ_CODE_NOT_RUNNABLE;
}

int vj_child_failure(const struct vj_launch *launch, size_t member, int failure_fd, char *text) {
  const struct vj_member *self = &launch->members[member];
  struct failure failure;
  ssize_t got;
  while ((got = read(failure_fd, &failure, sizeof failure)) < 0 && errno == EINTR) continue;
  if (got != sizeof failure) return 0;
  const char *reason = strerror(failure.error);
  switch (failure.step) {
  case STEP_LIMITS:
    vj_say(text, 0, "cannot set the job's limits: %s", reason);
    break;
  case STEP_USER:
    vj_say(text, 0, "cannot become uid %u: %s", (unsigned)launch->uid, reason);
    break;
  case STEP_CWD:
    vj_say(text, 0, "cannot enter directory %.400s as uid %u: %s", launch->cwd, (unsigned)launch->uid, reason);
    break;
  case STEP_TERMINAL:
    vj_say(text, 0, "cannot open a terminal as uid %u: %s", (unsigned)launch->uid, reason);
    break;
  case STEP_LOG:
    vj_say(text, 0, "cannot write the log %.400s as uid %u: %s", self->log, (unsigned)launch->uid, reason);
    break;
  case STEP_INTERPRETER:
    vj_say(text, 0, "cannot execute '%.200s': its interpreter was not found", *self->argv);
    break;
  default:
    return exec_failure(*self->argv, failure.error, text);
  }
  return VJ_CODE_NOT_RUNNABLE;
}
