/* shared_events.c - an event that two processes record and wait for, by query, by waiting and by their streams. */
#include "shared.h"

static void opener(struct pipes *pipes) {
  CUipcEventHandle handle;
  CUevent event;
  CUstream stream;
  char word = 'x';
  begin();
  CUfunction function = spin(1000);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  peer_say(pipes, &word, 1);
  peer_hear(pipes, &handle, sizeof handle);
  CHECK(cuIpcOpenEventHandle(&event, handle));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event)); /* the maker's 400 ms */
  CHECK(cuStreamWaitEvent(stream, event, 0));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  CHECK(cuEventSynchronize(event));
  CHECK(cuEventQuery(event));
  CHECK(cuStreamSynchronize(stream));
  for (int i = 0; i < 400; i++) launch(function, stream);
  CHECK(cuEventRecord(event, stream));
  peer_say(pipes, &word, 1);
  peer_hear(pipes, &word, 1);
  CHECK(cuEventDestroy_v2(event));
}

int main(void) {
  CUipcEventHandle handle;
  struct pipes other;
  CUevent event, plain, unused;
  CUstream stream;
  char word;
  peer_start(&other, opener);
  peer_hear(&other, &word, 1);
  begin();
  CUfunction function = spin(1000);
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
  CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(&handle, plain));
  CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventQuery(event));
  for (int i = 0; i < 400; i++) launch(function, stream);
  CHECK(cuEventRecord(event, stream));
  CHECK(cuIpcGetEventHandle(&handle, event));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&unused, handle));
  peer_say(&other, &handle, sizeof handle);
  CHECK(cuEventSynchronize(event));
  CHECK(cuStreamQuery(stream));
  peer_hear(&other, &word, 1); /* it has recorded the event behind 400 ms of its own */
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  CHECK(cuStreamWaitEvent(stream, event, 0));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventQuery(event));
  for (int i = 0; i < 3000; i++) { /* as with any event: what it waited for is over in its stream as well */
    CHECK(cuEventRecord(event, stream));
    if (i % 2) CHECK(cuEventSynchronize(event));
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) continue;
    CHECK(cuStreamQuery(stream));
  }
  CHECK(cuEventDestroy_v2(event));
  peer_say(&other, &word, 1);
  peer_end(&other);
  puts("ok");
  return 0;
}
