/*
 * dlopen_x86_64.S - dlopen as the program sees it. vg_dlopen_route() (dlopen_route.c) says which name to open and where
 * the real dlopen is; then a jump, not a call: the real one reads its return address to apply the caller's RUNPATH.
 */
  .text
  .globl dlopen
  .type dlopen, @function
  .balign 16
dlopen:
  .cfi_startproc
  endbr64
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  movq 8(%rsp), %rdx
  call vg_dlopen_route
  popq %rsi
  .cfi_adjust_cfa_offset -8
  movq %rax, %rdi
  jmp *%rdx
  .cfi_endproc
  .size dlopen, . - dlopen

  .section .note.GNU-stack,"",@progbits
