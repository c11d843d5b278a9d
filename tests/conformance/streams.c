/*
 * streams: streams and events: what is done and what is not, waits across streams, ends while work is pending.
 */
#include "row.h"

static CUstream stream;
static struct gate gate;

static void begin_stream(void) {
  begin();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void stream_query(void) {
  begin_stream();
  CODE("empty", cuStreamQuery(stream));
  close_gate(&gate, stream);
  CODE("busy", cuStreamQuery(stream));
  open_gate(&gate);
  CODE("wait", cuStreamSynchronize(stream));
  CODE("done", cuStreamQuery(stream));
}

static void stream_flags(void) {
  unsigned flags = 7;
  int priority = 7, least = 7, greatest = 7;
  CUcontext context = NULL, current;
  begin_stream();
  CODE("flags", cuStreamGetFlags(stream, &flags));
  fact("is", flags);
  CODE("priority", cuStreamGetPriority(stream, &priority));
  fact("is", priority);
  CODE("range", cuCtxGetStreamPriorityRange(&least, &greatest));
  fact("least", least);
  fact("greatest_not_above", greatest <= least);
  CODE("context", cuStreamGetCtx(stream, &context));
  NEED(cuCtxGetCurrent(&current));
  fact("same", context == current);
  CODE("unknown_flags", cuStreamCreate(&stream, 0x100));
  CODE("null", cuStreamCreate(NULL, 0));
}

static void stream_destroyed_while_busy(void) {
  CUdeviceptr block;
  unsigned char in = 0;
  begin_stream();
  NEED(cuMemAlloc_v2(&block, 16));
  NEED(cuMemsetD8_v2(block, 1, 16));
  close_gate(&gate, stream);
  NEED(cuMemsetD8Async(block, 9, 16, stream));
  CODE("destroy", cuStreamDestroy_v2(stream));
  open_gate(&gate);
  CODE("wait", cuCtxSynchronize());
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  fact("its_work_was_done", in);
}

static void event_query(void) {
  CUevent event;
  begin_stream();
  NEED(cuEventCreate(&event, 0));
  CODE("never_recorded", cuEventQuery(event));
  close_gate(&gate, stream);
  CODE("record", cuEventRecord(event, stream));
  CODE("busy", cuEventQuery(event));
  open_gate(&gate);
  CODE("wait", cuEventSynchronize(event));
  CODE("done", cuEventQuery(event));
}

static void event_wait_orders_streams(void) {
  CUevent event;
  CUstream other;
  CUdeviceptr block;
  unsigned char in = 0;
  begin_stream();
  NEED(cuMemAlloc_v2(&block, 16));
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CODE("wait_for_nothing", cuStreamWaitEvent(other, event, 0));
  CODE("free", cuStreamQuery(other));
  close_gate(&gate, stream);
  NEED(cuMemsetD8Async(block, 1, 16, stream));
  NEED(cuEventRecord(event, stream));
  CODE("wait", cuStreamWaitEvent(other, event, 0));
  NEED(cuMemsetD8Async(block, 2, 16, other));
  CODE("held", cuStreamQuery(other));
  CODE("destroy_awaited", cuEventDestroy_v2(event));
  open_gate(&gate);
  CODE("end", cuStreamSynchronize(other));
  NEED(cuMemcpyDtoH_v2(&in, block, 1));
  fact("last", in);
}

static void event_elapsed(void) {
  CUevent one, two, silent;
  float ms = -1;
  begin_stream();
  NEED(cuEventCreate(&one, 0));
  NEED(cuEventCreate(&two, 0));
  NEED(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
  CODE("never_recorded", cuEventElapsedTime_v2(&ms, one, two));
  NEED(cuEventRecord(one, stream));
  NEED(cuEventRecord(silent, stream));
  close_gate(&gate, stream);
  NEED(cuEventRecord(two, stream));
  CODE("busy", cuEventElapsedTime_v2(&ms, one, two));
  open_gate(&gate);
  NEED(cuStreamSynchronize(stream));
  CODE("done", cuEventElapsedTime_v2(&ms, one, two));
  fact("not_negative", ms >= 0);
  CODE("no_timing", cuEventElapsedTime_v2(&ms, silent, two));
  CODE("unknown_flags", cuEventCreate(&one, 0x100));
}

static void per_thread_stream(void) {
  begin_stream();
  close_gate(&gate, CU_STREAM_PER_THREAD);
  CODE("twin", cuStreamQuery_ptsz(NULL));
  CODE("named", cuStreamQuery(CU_STREAM_PER_THREAD));
  CODE("beside", cuStreamQuery(stream));
  open_gate(&gate);
  CODE("wait", cuStreamSynchronize_ptsz(NULL));
  CODE("twin", cuStreamQuery_ptsz(NULL));
}

static void legacy_stream_waits_for_others(void) {
  CUstream blocking;
  begin_stream();
  NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CUdeviceptr block;
  NEED(cuMemAlloc_v2(&block, 16));
  close_gate(&gate, blocking);
  NEED(cuMemsetD8Async(block, 1, 16, NULL));
  CODE("legacy", cuStreamQuery(NULL));
  CODE("non_blocking", cuStreamQuery(stream));
  open_gate(&gate);
  CODE("wait", cuStreamSynchronize(NULL));
  CODE("blocking", cuStreamQuery(blocking));
}

ROWS(ROW(stream_query), ROW(stream_flags), ROW(stream_destroyed_while_busy), ROW(event_query),
     ROW(event_wait_orders_streams), ROW(event_elapsed), ROW(per_thread_stream), ROW(legacy_stream_waits_for_others))
