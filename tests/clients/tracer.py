"""A recorder of driver calls: a libcuda.so.1 that passes every call on to the library named by TRACE_LIBRARY.

Written from the hook's own surface and compiled at test time. TRACE_FILE gets a line for each call: name, code, and a
checksum of what the call answered: bytes copied to the host, and whole numbers behind pointers (not handles, addresses
or times). Function pointers from cuGetProcAddress lead back here; a function is recognised by its address in
TRACE_LIBRARY or in the driver behind it (TRACE_DRIVER).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "shim" / "codegen"))

import cudaspec  # noqa: E402

#: pointers to these are answers that do not depend on when and where a program runs
WHOLE_NUMBERS = ("int *", "unsigned int *", "size_t *", "CUfunctionLoadingState *", "CUstreamCaptureStatus *")
#: answers that differ from run to run or, on purpose, in a slice
VARYING = ("cuMemGetInfo", "cuDeviceTotalMem", "cuPointerGetAttribute", "cuDeviceGetPCIBusId", "cuDriverGetVersion")
HEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gen/abi/cuda_abi.h"
#define COUNT %(count)dul
static const char *const names[COUNT];
static void *const ours[COUNT];
static void *theirs[2][COUNT]; /* of TRACE_LIBRARY, of TRACE_DRIVER */
static FILE *file;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void open_all(void);
static uint64_t mix(uint64_t sum, const void *bytes, size_t count) {
  const unsigned char *byte = bytes;
  for (size_t i = 0; byte != NULL && i < count; i++) sum = (sum ^ byte[i]) * 0x100000001b3;
  return sum;
}
static void note(const char *name, int code, uint64_t sum) {
  if (file == NULL) return;
  fprintf(file, "%%s %%d %%llx\\n", name, code, (unsigned long long)(code == 0 ? sum : 0));
}
static void *own(void *function) {
  for (size_t side = 0; side < 2; side++)
    for (size_t i = 0; i < COUNT; i++)
      if (theirs[side][i] == function) return ours[i];
  fprintf(stderr, "tracer: a function of no known name\\n");
  abort();
}
"""
TAIL = """
static void open_all(void) {
  const char *paths[2] = {getenv("TRACE_LIBRARY"), getenv("TRACE_DRIVER")};
  for (size_t side = 0; side < 2; side++) {
    void *library = paths[side] == NULL ? NULL : dlopen(paths[side], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "tracer: %s\\n", paths[side] == NULL ? "TRACE_LIBRARY and TRACE_DRIVER are not set" : dlerror());
      abort();
    }
    for (size_t i = 0; i < COUNT; i++) theirs[side][i] = dlsym(library, names[i]);
  }
  if (getenv("TRACE_FILE") != NULL) file = fopen(getenv("TRACE_FILE"), "we");
}
"""


def _sum(entry: cudaspec.EntryPoint) -> str:
    """The C expression of the checksum of what the call answered."""
    if entry.name.startswith(VARYING):
        return "0"
    arguments = {p.name: p.type_text for p in entry.parameters}
    if entry.name.startswith("cuMemcpyDtoH") and "dstHost" in arguments and "Async" not in entry.name:
        return "mix(1, dstHost, ByteCount)"
    sums = [name for name, kind in arguments.items() if kind in WHOLE_NUMBERS]
    return "".join(f"mix({n + 1}, {name}, sizeof *{name}) ^ " for n, name in enumerate(sums)) + "0"


def _function(entry: cudaspec.EntryPoint, index: int) -> str:
    answer = ""
    if entry.name.startswith("cuGetProcAddress"):
        answer = "  if (traced_code == CUDA_SUCCESS && pfn != NULL && *pfn != NULL) *pfn = own(*pfn);\n"
    return (
        f"{entry.prototype} {{\n  pthread_once(&once, open_all);\n"
        f"  if (theirs[0][{index}] == NULL) return CUDA_ERROR_NOT_FOUND;\n"
        f"  {entry.result} traced_code = ((__typeof__(&{entry.name}))theirs[0][{index}])({entry.argument_list});\n"
        f"{answer}"
        f'  note("{entry.name}", traced_code, {_sum(entry)});\n  return traced_code;\n}}\n'
    )


def build(folder: Path) -> Path:
    """Compiles the recorder into folder/libcuda.so.1 and returns the folder."""
    surface = cudaspec.read_committed(ROOT / "shim/gen/abi/cuda_abi.h")
    entries = [e for e in surface.entries if e.result == "CUresult"]
    text = HEAD % {"count": len(entries)} + "\n".join(_function(e, i) for i, e in enumerate(entries))
    text += "static const char *const names[COUNT] = {" + ",\n".join(f'"{e.name}"' for e in entries) + "};\n"
    text += "static void *const ours[COUNT] = {" + ",\n".join(f"(void *){e.name}" for e in entries) + "};\n" + TAIL
    source = folder / "tracer.c"
    source.write_text(text)
    command = ["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", f"-iquote{ROOT / 'shim'}"]
    command += ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-o", str(folder / "libcuda.so.1"), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return folder


def calls(trace: Path) -> list[tuple[str, int, str]]:
    """What was recorded: (name, code, checksum) in order."""
    rows = (line.split() for line in trace.read_text().splitlines())
    return [(name, int(code), checksum) for name, code, checksum in rows]
