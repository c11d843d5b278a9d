/* log.h - the shim's log. Silent unless VGPU_LOG names a file (or "stderr"); a line is written with one write(2). */
#ifndef VG_LOG_H
#define VG_LOG_H

void vg_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As vg_log, but only the first time for this site of the program. */
#define VG_LOG_ONCE(...)                                                                                               \
  do {                                                                                                                 \
    static int said;                                                                                                   \
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) vg_log(__VA_ARGS__);                                         \
  } while (0)

#endif
