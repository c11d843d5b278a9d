/* job.h - what the files of vgpu-job share.
 *
 * vgpu-job is the supervisor of one attempt of a job: a small static program that vgpud starts and that outlives it. It
 * reads its instructions from the socket on its stdin, begins the attempt by making its directory (a second supervisor
 * of the attempt is refused and runs nothing), starts every member as the job's user in cgroups of their own, waits,
 * stops the whole tree on SIGTERM, and leaves the result in a file, by rename. It begins by closing all descriptors but
 * the socket, and opens none without O_CLOEXEC. It is single-threaded, trusts vgpud, and trusts no input from the job:
 * of the job's processes it reads only what the kernel reports. */
#ifndef VGPU_JOB_H
#define VGPU_JOB_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define VJ_TEXT_BYTES 1024 /* one line for people */
#define VJ_NAME_BYTES 64   /* ID.ATTEMPT */
#define VJ_INSTRUCTIONS_BYTES_MAX (16u << 20)
#define VJ_MEMBERS_MAX 1024
#define VJ_CODE_NOT_RUNNABLE 126
#define VJ_CODE_NOT_FOUND 127
#define VJ_NS_PER_MS 1000000ull
#define VJ_NS_PER_S 1000000000ull

/* ---- what to run (instructions.c) ---- */

struct vj_member {
  char **argv, **env; /* end with NULL */
  const char *log;    /* absolute, or "": /dev/null */
};

struct vj_launch {
  const char *directory; /* where attempts' directories are */
  const char *name;      /* ID.ATTEMPT */
  const char *cwd;
  uid_t uid;
  gid_t gid;
  gid_t *groups;
  size_t group_count;
  mode_t umask;
  bool has_limit[RLIM_NLIMITS];
  struct rlimit limits[RLIM_NLIMITS];
  bool has_terminal;  /* the one member gets one; terminal_fd is the socket where it is joined, by daemon_uid only */
  int terminal_fd;    /* or -errno */
  int running_fds[2]; /* of it: a pipe that is closed with the end of the member's first process */
  uid_t daemon_uid;
  bool is_client; /* the programs are an engine's client and run as we do: only the logs are opened as the user */
  char *cleanup;  /* a command, words separated by blanks, run as we are when all has ended; NULL: none */
  char *first;    /* the same, which prints the pids of the containers' first processes */
  uint64_t cpu_milli, ram_bytes, pids_max; /* of each member; 0 = no limit */
  int signal;                              /* what the job's processes get when we get SIGUSR1; 0 = nothing */
  uint64_t grace_ns;                       /* between SIGTERM and SIGKILL, unless the stop request names another */
  struct vj_member *members;
  size_t member_count;
  char *bytes, **strings; /* all pointers above point into these */
};

/* Reads all instructions from a socket whose other end is of our own user. 0, or -errno and a line in text. */
int vj_launch_read(int fd, struct vj_launch *ret_launch, char *text);

/* Parses instructions; launch keeps `bytes`, which must be followed by a 0. Never freed: one per life. */
int vj_launch_parse(char *bytes, size_t count, struct vj_launch *ret_launch, char *text);

/* ---- the attempt's directory (attempt.c) ---- */

struct vj_member_end {
  bool ended;
  int code; /* as a shell says it */
  int signal;
};

struct vj_outcome {
  int code, signal;
  bool stopped; /* by a request */
  char why[VJ_TEXT_BYTES];
  uint64_t cpu_ns, ram_peak_bytes;
  int64_t began_wall_ns, ended_wall_ns;
};

struct vj_attempt {
  char path[PATH_MAX];
};

struct vj_cgroups;

/* Begins the attempt: makes its directory, which names the supervisor. -EEXIST: it has begun before. */
int vj_attempt_begin(const struct vj_launch *launch, const struct vj_cgroups *cgroups, struct vj_attempt *ret_attempt,
                     char *text);

/* The grace in the directory's file `stop`, else fallback_ns. */
uint64_t vj_attempt_grace_ns(const struct vj_attempt *attempt, uint64_t fallback_ns);

/* Leaves the result, whole or not at all. 0 or -errno. */
int vj_attempt_end(const struct vj_attempt *attempt, const struct vj_outcome *outcome,
                   const struct vj_member_end *members, size_t member_count);

/* Clock ticks since boot at which we started: with the pid, a unique identity. */
uint64_t vj_own_start(void);

/* ---- cgroups (cgroup.c) ---- */

enum vj_controller { VJ_CPU, VJ_MEMORY, VJ_PIDS, VJ_CONTROLLERS };

struct vj_cgroups {
  char track[PATH_MAX]; /* the attempt's directory by which its processes are known; "": no cgroup can be made here */
  bool unified;         /* track is of version 2 */
  char limit[VJ_CONTROLLERS][PATH_MAX]; /* the directory that has the controller, perhaps track; "": none */
  size_t leaves;                        /* directories 0 to leaves-1 in each: one for each member */
  char note[VJ_TEXT_BYTES];             /* what could not be set up; "": nothing */
};

/* Leaves our present cgroup and makes those of the members, with their limits. `here`: below our own cgroup, which is
 * delegated to us (systemd's Delegate=), instead of below /vgpud-jobs. Failures are in ret_cgroups->note. */
void vj_cgroups_make(const struct vj_launch *launch, bool here, struct vj_cgroups *ret_cgroups);

/* Puts a process into those of a member. 0 or -errno. */
int vj_cgroups_enter(const struct vj_cgroups *cgroups, size_t member, pid_t pid);

/* Calls visit for a directory and all below it, which jobs of root's may have made: those further down first. */
void vj_cgroups_walk(const char *directory, void (*visit)(const char *directory, void *data), void *data);

/* Whether a process lives in the cgroups by which processes are known; true where that cannot be read. */
bool vj_cgroups_populated(const struct vj_cgroups *cgroups);

/* CPU time and peak memory of all members together; what the kernel does not report stays as it was. */
void vj_cgroups_usage(const struct vj_cgroups *cgroups, uint64_t *cpu_ns, uint64_t *ram_peak_bytes);

/* How many processes the kernel has killed because a member reached its limit of memory. */
uint64_t vj_cgroups_oom_kills(const struct vj_cgroups *cgroups);

/* Removes those of the members, which must be empty. */
void vj_cgroups_remove(const struct vj_cgroups *cgroups);

/* ---- all processes of the job (tree.c) ---- */

/* Sends a signal to each process of the tree. */
void vj_tree_signal(const struct vj_cgroups *cgroups, int signal);

/* Sends a signal to each process that handles it; where none does, to each. A shell that only waits for its program
 * would be ended by it, and the program with it. */
void vj_tree_notify(const struct vj_cgroups *cgroups, int signal);

/* The same for a container's first process and all below it. */
void vj_tree_notify_below(pid_t first, int signal);

/* SIGTERM, and SIGCONT, to the programs below a container's first process. Not to a shell that runs another program:
 * it would end at once, and where it is all that the first process waits for, the container with it. */
void vj_tree_end_below(pid_t first);

/* SIGHUP to each process that ignores SIGTERM, as a shell at a terminal does. A shell hangs up what it has started as
 * well: unless `now`, nothing is done while there is a process that may still be ending by SIGTERM. Whether it is done.
 */
bool vj_tree_hang_up(const struct vj_cgroups *cgroups, bool now);

/* SIGKILL to all, also to processes that are forking; where the kernel cannot do it at once, call it again until the
 * tree is empty. */
void vj_tree_kill(const struct vj_cgroups *cgroups);

bool vj_tree_is_empty(const struct vj_cgroups *cgroups);

/* ---- the job's user (user.c) ---- */

/* Changes to it, with no way back. 0 or an error number. */
int vj_become_user(const struct vj_launch *launch);

/* ---- a member's first process (child.c) ---- */

/* Starts a member, in its cgroups when this returns, so that no signal to the tree misses it. Returns its pid and a
 * pipe with the failure before its program began, if any; or -errno. */
pid_t vj_child_start(const struct vj_launch *launch, const struct vj_cgroups *cgroups, size_t member, int null_fd,
                     int *ret_failure_fd);

/* Reads that pipe once it can be read. 0: the program runs; else its exit code, and a sentence. */
int vj_child_failure(const struct vj_launch *launch, size_t member, int failure_fd, char *text);

/* ---- a terminal (terminal.c) ---- */

/* Makes the socket `terminal` in an attempt's directory. Its descriptor or -errno. */
int vj_terminal_listen(const char *directory);

/* Makes terminal_fd and running_fds of a launch with a terminal, in an attempt's directory. */
void vj_terminal_prepare(struct vj_launch *launch, const char *directory);

/* Leaves them to the keeper, once the member has been started: the socket of a keeper that is gone does not answer. */
void vj_terminal_hand_over(const struct vj_launch *launch);

/* Notifies the keeper that the member's first process has ended. */
void vj_terminal_end(const struct vj_launch *launch);

/* Opens both sides, as the present effective user. 0 or an error number. */
int vj_terminal_open(int *ret_master_fd, int *ret_slave_fd);

/* Starts the keeper of a terminal: a process of its own, as the job's user. 0 or an error number. */
int vj_terminal_keep(const struct vj_launch *launch, int master_fd, int slave_fd, int log_fd, int null_fd);

/* What the keeper works with. */
struct vj_terminal_fds {
  int master, slave, listener, log, running; /* running: can be read, or is hung up, once the first process has ended */
};

/* What the keeper does: returns when the job's first process has ended and its programs have closed the terminal. */
void vj_terminal_serve(struct vj_terminal_fds fds, uid_t daemon_uid);

/* ---- from the first process to the last (supervise.c) ---- */

void vj_supervise(const struct vj_launch *launch, const struct vj_cgroups *cgroups, const struct vj_attempt *attempt,
                  int null_fd, struct vj_outcome *outcome);

/* ---- containers, which are an engine's (cleanup.c) ---- */

/* Runs the attempt's cleanup command, if it has one, with a deadline. May be called again. */
void vj_cleanup(const struct vj_launch *launch, int null_fd);

/* SIGTERM to the programs below the first process of each container, in a process of its own that is reaped later. */
void vj_containers_end(const struct vj_launch *launch, int null_fd);

/* In the same way, launch's signal to those that handle it. */
void vj_containers_notify(const struct vj_launch *launch, int null_fd);

/* ---- files (file.c) ---- */

/* printf into a text of VJ_TEXT_BYTES, made one printable line. Returns -error. */
int vj_say(char *text, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Path from parts. 0 or -ENAMETOOLONG. */
int vj_path(char *ret_path, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A whole small file, ended by a 0. Returns its length or -errno. */
ssize_t vj_read_file(const char *path, char *ret_text, size_t text_bytes);

/* One write to a file that is there, as cgroups want it. 0 or -errno. */
int vj_write_file(const char *path, const char *text);

int vj_write_all(int fd, const char *bytes, size_t count);

void vj_close_above(int lowest);

uint64_t vj_now_ns(void);
int64_t vj_wall_ns(void);

#endif
