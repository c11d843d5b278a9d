/* Writes two lines through shim/base/log.c, one of them longer than a line may be, and says whether errno survived. */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"

int main(void) {
  errno = EXDEV;
  for (int i = 0; i < 3; i++) VG_LOG_ONCE("once %d", i);
  vg_log("%0600d", 7);
  return errno == EXDEV ? 0 : 1;
}
