/* capture_mode.c - see capture_mode.h. */
#include "hooks/capture_mode.h"

#include "gen/abi/real.h"

bool vg_capture_mode_exchange(CUstreamCaptureMode *mode) {
  return HAVE(cuThreadExchangeStreamCaptureMode) && REAL(cuThreadExchangeStreamCaptureMode)(mode) == CUDA_SUCCESS;
}
