/*
 * glibc_floor.h - included before every C file of a shipped shared library (-include, build_shim.py). Newer glibcs gave
 * these functions a newer symbol version when they moved into libc.so, or another name for C23; the old one still
 * exists and does the same. A preloaded library that needs a version which a container's glibc lacks would kill every
 * process in it, so the libraries need none newer than 2.17 (tests/test_package.py checks it and names what is missing
 * here). Functions that old glibcs do not have at all are system calls in prim.c.
 */
#ifndef VG_GLIBC_FLOOR_H
#define VG_GLIBC_FLOOR_H
#ifndef __ASSEMBLER__

#if defined(__x86_64__)
#define VG_GLIBC_BASE "GLIBC_2.2.5" /* its first version for this machine */
#define VG_GLIBC_C99 "GLIBC_2.7"
#define VG_GLIBC_DLADDR1 "GLIBC_2.3.3"
#define VG_GLIBC_PRIO_INHERIT "GLIBC_2.4"
#elif defined(__aarch64__)
#define VG_GLIBC_BASE "GLIBC_2.17"
#define VG_GLIBC_C99 "GLIBC_2.17"
#define VG_GLIBC_DLADDR1 "GLIBC_2.17"
#define VG_GLIBC_PRIO_INHERIT "GLIBC_2.17"
#else
#error "no glibc base version is known for this machine: add it"
#endif

#define VG_GLIBC_AS(name, old, version) __asm__(".symver " name ", " old "@" version);
#define VG_GLIBC_OLD(name) VG_GLIBC_AS(#name, #name, VG_GLIBC_BASE)

VG_GLIBC_OLD(dladdr)
VG_GLIBC_OLD(dlclose)
VG_GLIBC_OLD(dlerror)
VG_GLIBC_OLD(dlsym)
VG_GLIBC_OLD(exp)
VG_GLIBC_OLD(log)
VG_GLIBC_OLD(log2)
VG_GLIBC_OLD(pow)
VG_GLIBC_AS("dladdr1", "dladdr1", VG_GLIBC_DLADDR1)
VG_GLIBC_AS("dlinfo", "dlinfo", VG_GLIBC_DLADDR1)
VG_GLIBC_OLD(pthread_attr_setstacksize)
VG_GLIBC_OLD(pthread_create)
VG_GLIBC_OLD(pthread_detach)
VG_GLIBC_OLD(pthread_join)
VG_GLIBC_OLD(pthread_key_create)
VG_GLIBC_OLD(pthread_mutex_trylock)
VG_GLIBC_OLD(pthread_mutexattr_destroy)
VG_GLIBC_OLD(pthread_mutexattr_init)
VG_GLIBC_AS("pthread_mutexattr_setprotocol", "pthread_mutexattr_setprotocol", VG_GLIBC_PRIO_INHERIT)
VG_GLIBC_OLD(pthread_mutexattr_settype)
VG_GLIBC_OLD(pthread_once)
VG_GLIBC_OLD(pthread_rwlock_init)
VG_GLIBC_OLD(pthread_rwlock_tryrdlock)
VG_GLIBC_OLD(pthread_rwlock_trywrlock)
VG_GLIBC_OLD(pthread_rwlock_unlock)
VG_GLIBC_OLD(pthread_setspecific)
VG_GLIBC_OLD(pthread_sigmask)
VG_GLIBC_AS("__isoc23_sscanf", "__isoc99_sscanf", VG_GLIBC_C99)
VG_GLIBC_AS("__isoc23_strtol", "strtol", VG_GLIBC_BASE)
VG_GLIBC_AS("__isoc23_strtoul", "strtoul", VG_GLIBC_BASE)
VG_GLIBC_AS("__isoc23_strtoull", "strtoull", VG_GLIBC_BASE)

#undef VG_GLIBC_OLD
#undef VG_GLIBC_AS
#endif
#endif
