/*
 * resolve.h - the real driver behind the shim: which file it is, its functions, and dlopen as the program sees it.
 * Only this folder and nvml/resolve_ml.c touch dlopen, dlsym and dlinfo. No locks and no intermediate states: every
 * step may run in several threads at once, and in a forked child, since the dynamic loader does the serialising.
 */
#ifndef VG_RESOLVE_H
#define VG_RESOLVE_H
#include <stdbool.h>
#include <stdint.h>

/* Fills a slot and returns what it holds from now on; never NULL. Called by lazy_<machine>.S, which has the slots
 * (vg_real_slots), and between spares_begin and spares_end VG_SPARES entries of equal size. */
void *vg_resolve_slot(uint32_t slot, void **slots, const char *spares_begin, const char *spares_end);
/* The name of a spare entry in our own symbol table, where vgpud/libraries/fit.py writes it; NULL: it has none yet. */
const char *vg_resolve_spare_name(const char *entry);
/* The real driver's function of that name, NULL when it has none. */
void *vg_resolve_symbol(const char *name);
/* Handle of the real driver, opened at the first call; NULL when there is none (the next call searches again). */
void *vg_resolve_driver(void);
/* Why the file that VGPU_DRIVER names is not a driver; "": it is one, was not opened yet, or none is named. */
#define VG_REFUSAL_BYTES 512
const char *vg_resolve_refusal(void);
bool vg_resolve_driver_opened(void);      /* without opening it */
const char *vg_resolve_driver_path(void); /* NULL while it is not opened */
/* The program names this very file as the driver: it becomes the real one unless there is one already. */
void vg_resolve_adopt(const char *path);
bool vg_resolve_in_driver(const void *code);       /* code lies in the real driver's own text */
bool vg_resolve_is_exported(const void *function); /* a symbol of some library begins there */
void *vg_resolve_next(const char *name);           /* the next definition of a libc function that we define too */

/* Where the container runtime puts the real libraries, since it mounts shims over the image's own. */
#define VG_CONTAINER_LIBRARIES "/usr/lib/vgpu/real/"
/* in_container if that file exists, else the file that the environment variable names, else NULL: search for it. */
const char *vg_resolve_named(const char *variable, const char *in_container);

/* Loads a file as the real library, RTLD_LOCAL. NULL: it cannot be loaded, is a shim, or lacks the function (then
 * vg_resolve_why() is not_it). */
void *vg_resolve_open(const char *path, const char *function, const char *not_it);
const char *vg_resolve_why(void); /* why a file was not accepted; right after it */

/* Whether the library itself defines a symbol of that name. */
bool vg_resolve_defines(void *library, const char *name);

/* From now on calls that a library makes to its own exported functions reach these functions and not our hooks. Called
 * right after dlopen(). */
void vg_resolve_own_calls(void *library);

/* Calls accept(path) for each file that the loader would try for a name, in its order, until one is accepted. */
bool vg_resolve_search(const char *name, bool (*accept)(const char *path));

/* Exported by libvgpu.so and libvgpu-ml.so, by no other library: how they know themselves and each other. Returns the
 * path of the real library behind the shim, NULL when there is none. */
const char *vg_shim_marker(void) __attribute__((visibility("default")));

#endif
