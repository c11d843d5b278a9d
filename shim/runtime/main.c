/* main.c - vgpu-runtime, run by container engines instead of runc or crun.
 *
 * Every call but the creation of a container with a request for vgpud is passed on at once, unchanged. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define S 1000000000ull

static const struct vr_patience patience = {.answer_ns = 10 * S, .missing_ns = 1 * S, .restart_ns = VR_RESTART_S * S};
/* Of a container that an engine starts again: once it is refused the engine gives it up. */
static const struct vr_patience known_patience = {
    .answer_ns = 30 * S, .missing_ns = 30 * S, .restart_ns = (VR_RESTART_S > 30 ? VR_RESTART_S : 30) * S};

/* Acts on vgpud's answer. 0: the low-level runtime may run. */
static int follow(const struct vr_reply *reply, const struct vr_bundle *bundle, const struct vr_conf *conf,
                  char *text) {
  switch (reply->status) {
  case VR_PASS:
    return 0;
  case VR_CONFIG:
    return vr_bundle_write(bundle, reply->body, reply->body_bytes, text);
  case VR_REFUSED:
    return vr_refusal(reply, text);
  default:
    return vr_say(text, EPROTO, "the process that answers at %s is not vgpud: correct `socket` in vgpu-runtime.conf",
                  conf->socket);
  }
}

/* 0: the low-level runtime may run. */
static int prepare(const struct vr_call *call, const struct vr_conf *conf, char *text) {
  static struct vr_bundle bundle;
  int asks = vr_bundle_read(call, &bundle, text);
  if (asks <= 0) return asks;
  if (*conf->problem) return vr_say(text, EINVAL, "%s", conf->problem);
  struct vr_request request = {"create",    call->id,          bundle.path, conf->self,
                               bundle.json, bundle.json_bytes, "container"};
  struct vr_reply reply;
  bool is_known = vr_has_scratch(conf->socket, call->id);
  int error = vr_ask(conf->socket, &request, is_known ? &known_patience : &patience, &reply, text);
  if (!error) error = follow(&reply, &bundle, conf, text);
  free(reply.buffer);
  free(bundle.json);
  return error;
}

int main(int argc, char **argv) {
  static char text[VR_TEXT_BYTES];
  static struct vr_conf conf;
  if (argc < 1) return 1;
  if (argc > 1 && !strcmp(argv[1], "vgpu-hook")) return vr_hook(argc, argv);
  if (argc > 1 && !strcmp(argv[1], "vgpu-slurm")) return vr_slurm(argc, argv);
  struct vr_call call;
  vr_call_parse(argc, argv, &call);
  vr_conf_load(argv[0], &conf);
  if (!call.makes_container || !prepare(&call, &conf, text)) vr_lowlevel_exec(&conf, argv, text);
  vr_report(&call, text);
  return 1;
}
