/* hook.c - `vgpu-runtime vgpu-hook started|stopped`: reports to vgpud that a container has started or is gone.
 * Called by main.c; run by the low-level runtime as a createRuntime or poststop hook, with the container's state on
 * stdin and whatever environment and directory.
 *
 * A `started` that fails keeps the container from starting, and our stderr reaches the user. A `stopped` never fails:
 * the deletion of a container must not depend on vgpud, which also finds out by itself. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_BYTES_MAX (1u << 20)
#define S 1000000000ull

/* Together less than the 60 s that vgpud gives this hook: our message says more than the low-level runtime's on a
 * timeout. */
static const struct vr_patience started_patience = {
    .answer_ns = 8 * S, .missing_ns = 1 * S, .restart_ns = VR_RESTART_S * S};
/* Short: it delays the deletion. */
static const struct vr_patience stopped_patience = {.answer_ns = 3 * S, .missing_ns = S / 5, .restart_ns = 1 * S};

static int tell(const char *op, const struct vr_patience *patience, const struct vr_conf *conf, char *text) {
  char *state = NULL;
  ssize_t got = vr_read_all(STDIN_FILENO, STATE_BYTES_MAX, patience->answer_ns, &state);
  if (got < 0) return vr_say(text, (int)-got, "cannot read the container's state from stdin: %s", vr_reason((int)-got));
  static char id[PATH_MAX], bundle[PATH_MAX];
  int error = got > (ssize_t)STATE_BYTES_MAX ? -E2BIG : vr_json_string(state, (size_t)got, "id", id, sizeof id);
  if (!error) error = vr_json_string(state, (size_t)got, "bundle", bundle, sizeof bundle);
  if (error) {
    free(state);
    return vr_say(
        text, -error,
        "stdin holds no container state (a JSON object with `id` and `bundle`): this is a hook for OCI runtimes");
  }
  struct vr_request request = {op, id, bundle, conf->self, state, (size_t)got, "container"};
  struct vr_reply reply;
  error = vr_ask(conf->socket, &request, patience, &reply, text);
  free(state);
  if (error) return error;
  error = reply.status == VR_REFUSED ? vr_refusal(&reply, text) : 0;
  free(reply.buffer);
  return error;
}

int vr_hook(int argc, char **argv) {
  const char *op = argc == 3 ? argv[2] : "";
  static char text[VR_TEXT_BYTES];
  static const struct vr_call nowhere; /* no log: the low-level runtime shows our stderr */
  static struct vr_conf conf;
  vr_conf_load(argv[0], &conf);
  if (!strcmp(op, "stopped")) {
    tell(op, &stopped_patience, &conf, text);
    return 0;
  }
  if (strcmp(op, "started"))
    vr_say(text, 0, "usage: vgpu-runtime vgpu-hook started|stopped, with the container's state on stdin");
  else if (*conf.problem)
    memcpy(text, conf.problem, sizeof text);
  else if (!tell(op, &started_patience, &conf, text))
    return 0;
  vr_report(&nowhere, text);
  return 1;
}
