/* capture.c - how many streams capture. The mutex keeps the helper's own driver calls out of the moment in which a
 * capture begins. */
#include "context/context.h"
#include "gate/state.h"
#include "gen/abi/real.h"

uint32_t vg_gate_captures;
pthread_mutex_t vg_gate_capture_mutex = PTHREAD_MUTEX_INITIALIZER;

void vg_gate_capture_begin(void) {
  pthread_mutex_lock(&vg_gate_capture_mutex);
  __atomic_add_fetch(&vg_gate_captures, 1, __ATOMIC_ACQ_REL);
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE); /* closes the short path of all threads */
  pthread_mutex_unlock(&vg_gate_capture_mutex);
}

void vg_gate_capture_end(void) {
  __atomic_sub_fetch(&vg_gate_captures, 1, __ATOMIC_ACQ_REL);
}

bool vg_gate_is_capturing(void) {
  return VG_LOAD(&vg_gate_captures) != 0;
}

CUresult vg_gate_record_context(CUcontext context, CUevent event) {
  pthread_mutex_lock(&vg_gate_capture_mutex);
  CUresult result = VG_LOAD(&vg_gate_captures) ? CUDA_ERROR_NOT_READY : REAL(cuCtxRecordEvent)(context, event);
  pthread_mutex_unlock(&vg_gate_capture_mutex);
  return result;
}

void vg_gate_capture_forked_child(void) {
  pthread_mutex_init(&vg_gate_capture_mutex, NULL);
  vg_gate_captures = 0;
}
