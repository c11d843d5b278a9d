/* Stands for NVML; with -DSHIM for libvgpu-ml.so, whose marker says which library it replaces (TINY_NVML). */
#include <stdlib.h>

int nvmlInit_v2(void) {
  return 0;
}
#ifdef SHIM
const char *vg_shim_marker(void);
const char *vg_shim_marker(void) {
  return getenv("TINY_NVML");
}
#endif
