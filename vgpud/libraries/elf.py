"""The dynamic symbols of a shared library, read as the dynamic loader reads them: 64-bit, little-endian ELF."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 0, 1, 2, 4, 5, 6, 7, 8
DT_STRSZ, DT_SONAME, DT_JMPREL, DT_GNU_HASH = 10, 14, 23, 0x6FFFFEF5
STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE = 1, 2, 10
STT_OBJECT, STT_FUNC, STT_COMMON, STT_TLS, STT_GNU_IFUNC = 1, 2, 5, 6, 10
SYMBOL_BYTES = 24
MACHINES = {"x86_64": 62, "aarch64": 183}

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class ElfError(ValueError):
    """The file is not a 64-bit little-endian shared library, or is truncated; the message names it."""


@dataclass(frozen=True)
class Symbol:
    index: int
    name: str
    name_offset: int  # in the string table
    kind: int  # STT_*
    binding: int  # STB_*
    visibility: int  # STV_*
    section: int  # 0: undefined
    value: int

    @property
    def is_exported(self) -> bool:
        """Whether it is defined here and visible to other objects."""
        return (
            self.section != 0 and self.binding in (STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE) and self.visibility in (0, 3)
        )

    @property
    def function(self) -> bool:
        return self.kind in (STT_FUNC, STT_GNU_IFUNC)

    @property
    def data(self) -> bool:
        """Whether it is a variable, of the library or per thread."""
        return self.kind in (STT_OBJECT, STT_COMMON, STT_TLS)


class Elf:
    """A shared library as bytes that may be changed in place. Raises ElfError if it is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray(path.read_bytes())
        try:
            self._read()
        except (struct.error, IndexError, KeyError) as error:
            raise ElfError(f"{path} is not a readable shared library: {error}") from error

    def _read(self) -> None:
        head = _HEADER.unpack_from(self.data)
        if head[0][:6] != b"\x7fELF\x02\x01":
            raise ElfError(f"{self.path} is not a 64-bit little-endian ELF file")
        self.machine: int = head[2]
        size, count = head[9], head[10]
        headers = [_PROGRAM_HEADER.unpack_from(self.data, head[5] + i * size) for i in range(count)]
        self._loads: list[tuple[int, int, int]] = [(h[3], h[2], h[5]) for h in headers if h[0] == PT_LOAD]
        if any(offset + size > len(self.data) for _, offset, size in self._loads):
            raise ElfError(f"{self.path} is cut short: install it again")
        dynamic = next((h for h in headers if h[0] == PT_DYNAMIC), None)
        if dynamic is None:
            raise ElfError(f"{self.path} has no dynamic section")
        self.tags: list[tuple[int, int]] = []
        for offset in range(dynamic[2], dynamic[2] + dynamic[5], _DYNAMIC.size):
            tag, value = _DYNAMIC.unpack_from(self.data, offset)
            if tag == DT_NULL:
                break
            self.tags.append((tag, value))
        self.strings = self.offset(self.tag(DT_STRTAB))
        self.string_bytes = self.tag(DT_STRSZ)
        self.symbol_table = self.offset(self.tag(DT_SYMTAB))

    def tag(self, tag_number: int) -> int:
        """The value of the first dynamic entry of that tag. Raises KeyError if there is none."""
        for tag, value in self.tags:
            if tag == tag_number:
                return value
        raise KeyError(f"dynamic tag {tag_number:#x}")

    def has_tag(self, tag_number: int) -> bool:
        return any(tag == tag_number for tag, _ in self.tags)

    def offset(self, address: int) -> int:
        """The file offset of a virtual address."""
        for start, offset, size in self._loads:
            if start <= address < start + size:
                return address - start + offset
        raise IndexError(f"address {address:#x} is in no segment of the file")

    def text(self, name_offset: int) -> str:
        """A string of the dynamic string table."""
        start = self.strings + name_offset
        end = self.data.find(b"\0", start, self.strings + self.string_bytes)
        if end < 0:
            raise IndexError(f"the name at {name_offset} has no end")
        return self.data[start:end].decode("ascii", "replace")

    def words(self, offset: int, count: int) -> tuple[int, ...]:
        """32-bit words of the file."""
        return struct.unpack_from(f"<{count}I", self.data, offset)

    def symbol_count(self) -> int:
        """Number of entries of the dynamic symbol table, from the hash table: no other loaded part has it."""
        if self.has_tag(DT_HASH):
            return self.words(self.offset(self.tag(DT_HASH)), 2)[1]
        table = self.offset(self.tag(DT_GNU_HASH))
        buckets, first, bloom = self.words(table, 3)
        start = table + 16 + bloom * 8
        last = max(self.words(start, buckets), default=0)
        if last < first:
            return first
        while not self.words(start + buckets * 4 + (last - first) * 4, 1)[0] & 1:
            last += 1
        return int(last) + 1

    def symbols(self) -> Iterator[Symbol]:
        """Every dynamic symbol except the first, which is null."""
        for index in range(1, self.symbol_count()):
            fields = _SYMBOL.unpack_from(self.data, self.symbol_table + index * SYMBOL_BYTES)
            name, info, other, section, value, _ = fields
            yield Symbol(index, self.text(name), name, info & 15, info >> 4, other & 3, section, value)

    def exports(self) -> dict[str, Symbol]:
        """The exported symbols by name."""
        try:
            return {s.name: s for s in self.symbols() if s.is_exported}
        except (struct.error, IndexError, KeyError) as error:
            raise ElfError(f"{self.path}: its dynamic symbols cannot be read: {error}") from error

    def find_needed_libraries(self) -> list[str]:
        """The libraries that it is linked with."""
        return [self.text(value) for tag, value in self.tags if tag == DT_NEEDED]
