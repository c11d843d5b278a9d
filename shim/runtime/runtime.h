/* runtime.h - what the files of vgpu-runtime share.
 *
 * vgpu-runtime is called by a container engine instead of the low-level OCI runtime (runc, crun). It is a short-lived,
 * single-threaded program: it asks vgpud about a container that requests a slice, writes vgpud's answer to config.json,
 * and becomes the low-level runtime by exec, with the arguments, the environment and the descriptors it was given. So
 * everything that it opens is O_CLOEXEC, it never forks, and it changes neither signals, umask nor directory. */
#ifndef VGPU_RUNTIME_H
#define VGPU_RUNTIME_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VR_TEXT_BYTES 4096 /* one line for people */
#define VR_BODY_BYTES_MAX (4u << 20)
#define VR_NS_PER_MS 1000000ull

/* ---- arguments (args.c) ---- */

/* The engine's call, as far as it concerns us. The strings are argv's own. */
struct vr_call {
  const char *subcommand; /* NULL: none, as in `--version` */
  const char *log_path;   /* NULL: no log */
  const char *bundle;     /* NULL: the current directory */
  const char *config;     /* crun's --config; NULL: <bundle>/config.json */
  const char *id;         /* NULL: none given; the low-level runtime will refuse that */
  bool log_is_json;
  bool makes_container; /* create or run, with an id */
};

void vr_call_parse(int argc, char **argv, struct vr_call *ret_call);

/* ---- configuration (conf.c) ---- */

struct vr_conf {
  char socket[PATH_MAX];
  char runtime[PATH_MAX];      /* name or absolute path; "": the first of the usual ones */
  char self[PATH_MAX];         /* how engines and hooks call this program; "": /proc is not there */
  char problem[VR_TEXT_BYTES]; /* the error in the file; "": none */
};

/* argv0: as main got it. A missing file is no error; bad lines are left out and named in ret_conf->problem, since an
 * existing container must be stoppable whatever the file holds. */
void vr_conf_load(const char *argv0, struct vr_conf *ret_conf);

/* Parses one file's text into conf; name is for the problem. */
void vr_conf_parse(const char *name, char *text, struct vr_conf *conf);

/* ---- the bundle (bundle.c) ---- */

struct vr_bundle {
  char path[PATH_MAX];      /* canonical */
  char directory[PATH_MAX]; /* of the configuration file: the bundle, but for --config */
  char name[NAME_MAX + 1];  /* its name there */
  char *json;               /* malloc'ed */
  size_t json_bytes;
  mode_t mode;
  uid_t uid;
  gid_t gid;
};

/* 1: the container has a request for vgpud, ret_bundle is filled. 0: it has none, or the low-level runtime reports the
 * error better. Negative: it has one that cannot be served; text says why. */
int vr_bundle_read(const struct vr_call *call, struct vr_bundle *ret_bundle, char *text);

/* Replaces config.json by json, as a whole or not at all. */
int vr_bundle_write(const struct vr_bundle *bundle, const char *json, size_t json_bytes, char *text);

/* Whether config.json may hold a request. No false negatives; on a false positive vgpud answers `pass`. */
bool vr_bundle_asks(const char *json, size_t json_bytes);

/* ---- the conversation with vgpud (wire.c, ask.c) ---- */

struct vr_request {
  const char *op, *id, *bundle, *self;
  const char *body;
  size_t body_bytes;
  const char *asker; /* what asks for a GPU, for messages: "container" or "job" */
};

enum vr_status { VR_PASS, VR_CONFIG, VR_OK, VR_REFUSED };

struct vr_reply {
  enum vr_status status;
  char *buffer; /* malloc'ed; holds the body */
  const char *body;
  size_t body_bytes;
};

/* How long a container's start waits for a daemon that restarts. An upgrade takes it away for some seconds, on a busy
 * node for more, and kubelet counts a container that fails meanwhile as a failure of its pod; it waits 2 minutes
 * itself. Tests that wait for the end of it build with less. */
#ifndef VR_RESTART_S
#define VR_RESTART_S 40
#endif

/* How long to wait, in ns. */
struct vr_patience {
  uint64_t answer_ns;  /* for the answer of a daemon that takes the question */
  uint64_t missing_ns; /* for a socket that is not there and never was */
  uint64_t restart_ns; /* for a daemon that went away, or whose socket refuses connections */
};

/* Writes the request's header. Returns its length, -EINVAL where a value holds a line break, or -E2BIG. */
int vr_wire_header(const struct vr_request *request, char *ret_header, size_t header_bytes);

/* Reads a reply out of `bytes` bytes: 1 complete (ret_reply's status and body set), 0 more must come,
 * -EPROTONOSUPPORT another version, -EPROTO no reply of ours, -EMSGSIZE longer than allowed. */
int vr_wire_reply(char *buffer, size_t bytes, struct vr_reply *ret_reply);

/* One question, asked again while the daemon restarts. 0 and ret_reply (free the buffer), or -errno and a line in text.
 */
int vr_ask(const char *socket_path, const struct vr_request *request, const struct vr_patience *patience,
           struct vr_reply *ret_reply, char *text);

/* Whether vgpud had this container when it went away: it leaves the directory of a container's own files behind, beside
 * its socket (vgpud/containers/server.py: scratch_of). */
bool vr_has_scratch(const char *socket_path, const char *id);

/* Copies the text of a refusal. Returns -EPERM. */
int vr_refusal(const struct vr_reply *reply, char *text);

/* ---- hooks and steps of Slurm jobs (hook.c, json.c, slurm.c) ---- */

/* `vgpu-runtime vgpu-hook started|stopped`. Returns the exit status. */
int vr_hook(int argc, char **argv);

/* `vgpu-runtime vgpu-slurm begin|end KEY=VALUE...` (slurm.c). Returns the exit status. */
int vr_slurm(int argc, char **argv);

/* Copies the string that the outermost object has under `key`. -ENOENT, -EINVAL (no JSON), -E2BIG. */
int vr_json_string(const char *json, size_t json_bytes, const char *key, char *ret_value, size_t value_bytes);

/* ---- the low-level runtime (lowlevel.c) ---- */

/* Becomes the low-level runtime. Returns only on failure: -errno and a line in text. */
int vr_lowlevel_exec(const struct vr_conf *conf, char **argv, char *text);

/* ---- messages (report.c) ---- */

/* printf into a text of VR_TEXT_BYTES. Returns -error, so that a caller can return it. */
int vr_say(char *text, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Why a system call failed, in words that vr_plain_words does not change. */
const char *vr_reason(int error);

/* Replaces line breaks and other control characters by blanks. */
void vr_one_line(char *text);

/* Replaces phrases that engines would take for a fault of the container's command. */
void vr_plain_words(char *text);

/* The line for the engine's log, if it has one, and for stderr. */
void vr_report(const struct vr_call *call, const char *text);

/* The record for the engine's log. Returns its length; record_bytes must be at least 6 * VR_TEXT_BYTES + 128. */
size_t vr_report_record(bool is_json, int64_t wall_s, const char *text, char *ret_record, size_t record_bytes);

/* ---- files (file.c) ---- */

/* fd, or a copy above stdin, stdout and stderr where it is one of them: an engine may have closed those. -errno. */
int vr_above_stdio(int fd);

/* Reads up to `most` bytes; *ret_buffer is malloc'ed and one byte longer, holding 0. Returns the length or -errno;
 * `most` + 1 bytes are read where there are more. timeout_ns bounds all of it (UINT64_MAX: none). */
ssize_t vr_read_all(int fd, size_t most, uint64_t timeout_ns, char **ret_buffer);

int vr_write_all(int fd, const char *bytes, size_t count);

uint64_t vr_now_ns(void);

#endif
