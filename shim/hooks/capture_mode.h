/*
 * capture_mode.h - the stream capture mode of the calling thread.
 */
#ifndef VG_HOOK_CAPTURE_MODE_H
#define VG_HOOK_CAPTURE_MODE_H
#include <stdbool.h>

#include "gen/abi/cuda_abi.h"

/* Exchanges the calling thread's mode with *mode: in mode RELAXED our own calls end no capture. False: unchanged. */
bool vg_capture_mode_exchange(CUstreamCaptureMode *mode);

#endif
