/*
 * old_start.h - put before a test's program (-include, with -nostartfiles) so that it runs on an old glibc, too,
 * wherever it was built: crt1.o of a newer glibc asks for GLIBC_2.34. x86_64 only.
 */
#include "base/glibc_floor.h"

int main(int, char **);
int __libc_start_main(int (*)(int, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5");
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlmopen, dlmopen@GLIBC_2.3.4");
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin_program\n hlt\n");

__attribute__((used)) static void begin_program(long *stack) {
  __libc_start_main(main, (int)stack[0], (char **)(stack + 1), 0, 0, 0, stack);
}
