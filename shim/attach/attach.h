/*
 * attach.h - attaches the process to the daemon: over the slice's socket, before the driver's cuInit. The helper thread
 * (helper_thread.c) coasts when the daemon is gone and attaches again. socket.c is the only file of the shim with
 * sockets.
 */
#ifndef VG_LINK_H
#define VG_LINK_H
#include <stdbool.h>
#include <stdint.h>

/*
 * Called by the cuInit hook, between enter and leave, before the driver's cuInit. Attaches (once per process, again in
 * a forked child). Returns 0 when the program may continue: in a slice (vg_session.attached), without one because no
 * socket is configured, or without a daemon as the mode says (vg_link_wanted()). Otherwise the program cannot run; the
 * reason has been logged; the errors, as negative numbers:
 *
 *   - EACCES: the daemon refused the process, or there is no slice of that name
 *   - EPROTONOSUPPORT: the daemon speaks another ABI version
 *   - ENOSPC: the slice has as many processes as it may
 *   - ECONNREFUSED: mode closed and no daemon
 *   - EPROTO, ENOMEM, EAGAIN (no thread): the process cannot be attached at all
 */
int vg_link_attach(void);
/* Around cuInit: one thread at a time, also in a child that was forked while another thread was inside. */
void vg_link_enter(void);
void vg_link_leave(void);
const char *vg_link_refusal_text(void); /* the daemon's reason, or what was in the way, or "" */
bool vg_link_wanted(void);              /* a socket is configured, so this process belongs to a slice */
/* After the driver's cuInit when no daemon has answered yet: the devices as the driver shows them, so that memory is
 * accounted from the start and the helper thread can attach late. uuids: count times VG_UUID_BYTES. */
int vg_link_devices(const uint8_t *uuids, uint32_t count);

extern void (*vg_link_forked)(void); /* set by the hooks: resets their state in a forked child */

#endif
