"""Tiny drivers for the tests of the hook: every function answers with a checksum of its arguments and nothing else.

Written from the same surface as the hook, with names left out, added or sharing one address, and compiled at test time.
TINY_TRACE names a file that gets the name of every function called; TINY_SUCCESS makes every function return 0.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import hookdef
from cudaspec import EntryPoint, Surface

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = Path(__file__).with_name("snippets")
LOOKUPS = ("cuGetProcAddress", "cuGetProcAddress_v2")

HEAD = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "gen/abi/cuda_abi.h"
static void note(const char *name) {
  const char *file = getenv("TINY_TRACE");
  int descriptor = file == NULL ? -1 : open(file, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (descriptor < 0) return;
  dprintf(descriptor, "%s\\n", name);
  close(descriptor);
}
static unsigned mix(unsigned sum, const void *bytes, size_t count) {
  const unsigned char *byte = bytes;
  for (size_t i = 0; i < count; i++) sum = sum * 31 + byte[i];
  return sum;
}
static CUresult answer(unsigned sum) { return getenv("TINY_SUCCESS") != NULL ? CUDA_SUCCESS : (CUresult)(sum >> 1); }
"""

LOOKUP = """
struct row { const char *symbol; void *old_legacy, *new_legacy, *old_thread, *new_thread; };
static const struct row rows[] = {
%(rows)s
};
static CUresult look_up(const char *symbol, void **function, int version, cuuint64_t flags) {
  *function = NULL;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (strcmp(rows[i].symbol, symbol) != 0) continue;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
      *function = version < 12000 ? rows[i].old_thread : rows[i].new_thread;
    else
      *function = version < 12000 ? rows[i].old_legacy : rows[i].new_legacy;
  }
  return *function == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
  note("cuGetProcAddress");
  return (uintptr_t)symbol == 0x100000000 ? CUDA_ERROR_INVALID_VALUE : look_up(symbol, function, version, flags);
}
"""

LOOKUP_V2 = """
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  note("cuGetProcAddress_v2");
  if ((uintptr_t)symbol == 0x100000000) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = look_up(symbol, function, version, flags);
  if (status != NULL)
    *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return result;
}
"""


@dataclass(frozen=True)
class TinyDriver:
    path: Path
    names: tuple[str, ...]  # all that it exports, sorted
    extra: tuple[str, ...]  # those of them that no header has

    @property
    def families(self) -> list[str]:
        """The names as programs ask cuGetProcAddress for them."""
        return sorted({hookdef.family(name) for name in self.names})


def compile_c(output: Path, *arguments: str | Path, compiler: str = "gcc") -> Path:
    """Compiles and links; raises CalledProcessError (the compiler's words are on stderr) when it cannot."""
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [
        compiler,
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-fPIC",
        "-pthread",
        f"-iquote{ROOT / 'shim'}",
        "-o",
        output,
        *arguments,
        "-ldl",
    ]
    subprocess.run([str(word) for word in command], check=True)
    return output


def _function(entry: EntryPoint) -> str:
    mixes = " ".join(f"sum = mix(sum, &{p.name}, sizeof {p.name});" for p in entry.parameters)
    return (
        f'{entry.prototype} {{ note("{entry.name}"); unsigned sum = {len(entry.name)}; {mixes} return answer(sum); }}'
    )


def _extra(name: str) -> str:
    declaration = f"CUresult {name}(long a, double b, int c, long d, long e, long f, long g, long h, char i)"
    mixes = " ".join(f"sum = mix(sum, &{n}, sizeof {n});" for n in "abcdefghi")
    body = f'note("{name}"); unsigned sum = {len(name)}; {mixes} return answer(sum);'
    return f'__attribute__((visibility("default"))) {declaration} {{ {body} }}'


def _rows(names: Iterable[str]) -> str:
    families: dict[str, dict[bool, list[str]]] = {}
    for name in sorted(names, key=lambda n: (len(n), n)):
        per_thread = name.endswith(("_ptsz", "_ptds"))
        families.setdefault(hookdef.family(name), {True: [], False: []})[per_thread].append(name)
    lines = []
    for family, op_types in families.items():
        legacy, thread = op_types[False], op_types[True] or op_types[False]
        chosen = ", ".join(f"(void *){n[i]}" if n else "NULL" for n in (legacy, thread) for i in (0, -1))
        lines.append(f'  {{"{family}", {chosen}}},')
    return "\n".join(lines)


def build(
    surface: Surface,
    folder: Path,
    missing: Iterable[str] = (),
    extra: Iterable[str] = (),
    aliases: Mapping[str, str] | None = None,
    private: Iterable[str] = (),
    compiler: str = "gcc",
) -> TinyDriver:
    """Compiles folder/libcuda.so.1 (and the link libcuda.so). `aliases`: name -> the name whose code it shares.

    `private`: what cuGetProcAddress gives for these is not the exported function but another one.
    """
    aliases = aliases or {}
    extra = tuple(sorted(extra))
    entries = [e for e in surface.entries if e.name not in set(missing)]
    names = tuple(sorted([*(e.name for e in entries), *extra]))
    text = [HEAD]
    text += [_function(e) for e in entries if e.name not in LOOKUPS and e.name not in aliases]
    text += [_extra(name) for name in extra]
    for alias, target in aliases.items():
        text.append(f'extern __typeof__({alias}) {alias} __attribute__((alias("{target}")));')
    rows = _rows(names)
    for entry in entries:
        if entry.name in set(private):
            text.append(f"static CUresult private_{entry.name}({entry.declaration_list}) {{ return answer(0); }}")
            rows = rows.replace(f"(void *){entry.name},", f"(void *)private_{entry.name},")
    text.append(LOOKUP % {"rows": rows})
    if "cuGetProcAddress_v2" in names:
        text.append(LOOKUP_V2)
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "driver.c"
    source.write_text("\n".join(text))
    flags = ["-w", "-shared", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]
    path = compile_c(folder / "libcuda.so.1", *flags, source, compiler=compiler)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    return TinyDriver(path, names, extra)


def snippet(name: str, output: Path, names: Iterable[str], *arguments: str | Path) -> Path:
    """Compiles snippets/<name>.c with these entry points as names.inc."""
    output.parent.mkdir(parents=True, exist_ok=True)
    (output.parent / f"{output.name}.inc").mkdir(exist_ok=True)
    (output.parent / f"{output.name}.inc" / "names.inc").write_text("".join(f"NAME({n})\n" for n in names))
    include = f"-I{output.parent / f'{output.name}.inc'}"
    return compile_c(output, "-w", include, SNIPPETS / f"{name}.c", *arguments)
