/*
 * event.h - the driver's events as the gate uses them: markers, and pairs that time launches. By any thread, in the
 * relaxed capture mode: there a query of an event does not invalidate a capture that is open or begins in another
 * thread.
 */
#ifndef VG_GATE_EVENT_H
#define VG_GATE_EVENT_H
#include <stdbool.h>

#include "gen/abi/cuda_abi.h"

struct vg_stream;

CUstreamCaptureMode vg_event_mode(CUstreamCaptureMode mode); /* returns the mode before, which is to be restored */
CUevent vg_event_new(unsigned int flags);                    /* NULL: it cannot be made */
void vg_event_drop(CUevent event);                           /* or NULL */
CUresult vg_event_record(CUevent event, const struct vg_stream *stream);
CUresult vg_event_query(CUevent event);
bool vg_event_is_pending(CUevent event);

#endif
