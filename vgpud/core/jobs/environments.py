"""The site's environments: named images and commands with defaults, and who may use them. Pure.

An administrator writes them as a file of TOML (docs/environments.md); this module reads its table. One that is wrong is
refused as a whole, with the name and the key: half a list would let jobs run with other defaults than they had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vgpud.core.jobs.container_parts import NO_PARTS, ContainerParts, PartError, parse_parts
from vgpud.core.jobs.image_name import image_error
from vgpud.core.model import Asker
from vgpud.core.units import UnitError, parse_bytes, parse_gpus

ENVIRONMENTS_MAX, REGISTRIES_MAX, MEMBERS_MAX, VARIABLES_MAX, WORDS_MAX = 200, 50, 100, 100, 100
DESCRIPTION_CHARACTERS_MAX, TEXT_CHARACTERS_MAX = 200, 4_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPAN_PART = re.compile(r"(\d{1,6})([dhms])")
_CPUS = re.compile(r"\d{1,4}(\.\d{1,3})?")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: who a member is -> the key that callers have, such as uid:1000; "" of one that does not exist
FindMember = Callable[[str], str]


class CatalogError(ValueError):
    """The list is not valid: one line that names the environment, the key and the remedy."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Who may use it. `words`: as the site has written them, none: every user; `keys`: uid:1000, gid:1000."""

    words: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()

    def has(self, asker: Asker) -> bool:
        own = (f"uid:{asker.uid}", *(f"gid:{gid}" for gid in asker.gids))
        return asker.admin or not self.words or not self.keys.isdisjoint(own)


EVERY_USER = Audience()


@dataclass(frozen=True, slots=True)
class Environment:
    """One of the list; what is 0 or empty has no default."""

    name: str
    description: str = ""
    audience: Audience = EVERY_USER
    image: str = ""
    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    parts: ContainerParts = NO_PARTS
    gpus_milli: int = 0
    mem_bytes: int = 0
    cpu_milli: int = 0
    ram_bytes: int = 0
    time_limit_s: int = 0
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """Credentials by name: the file has them, and no job's record does."""

    name: str
    auth_file: str
    audience: Audience = EVERY_USER


@dataclass(frozen=True, slots=True)
class Catalog:
    """All of the file. `unknown`: members that do not exist, which may use nothing by it."""

    environments: Mapping[str, Environment] = field(default_factory=dict)
    registries: Mapping[str, Registry] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def parse_catalog(document: Mapping[str, Any], find_member: FindMember) -> Catalog:
    """Of the file's table. Raises CatalogError."""
    return _Parser(find_member).parse(document)


class _Parser:
    def __init__(self, find_member: FindMember) -> None:
        self._find_member = find_member
        self._unknown: dict[str, None] = {}

    def parse(self, document: Mapping[str, Any]) -> Catalog:
        _check_keys("the file", document, ("environment", "registry"))
        made = self._read_tables(document, "registry", REGISTRIES_MAX, self._registry)
        registries = {name: one for name, one in made.items() if isinstance(one, Registry)}
        found = self._read_tables(document, "environment", ENVIRONMENTS_MAX, self._environment)
        environments = {name: one for name, one in found.items() if isinstance(one, Environment)}
        for one in environments.values():
            registry = one.parts.registry
            if registry and registry not in registries:
                remedy = f"write a table [registry.{registry}]"
                raise CatalogError(f"environment.{one.name}: there is no registry {registry!r}: {remedy}")
        return Catalog(environments, registries, tuple(self._unknown))

    def _read_tables(
        self,
        document: Mapping[str, Any],
        kind: str,
        count_max: int,
        read: Callable[[str, str, Mapping[str, Any]], object],
    ) -> dict[str, object]:
        tables = document.get(kind, {})
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise CatalogError(f"{kind} is not a table of tables: write [{kind}.NAME] and its keys below it")
        if len(tables) > count_max:
            raise CatalogError(f"there are {len(tables)} of [{kind}.NAME]: at most {count_max} are allowed")
        for name in tables:
            if not _NAME.fullmatch(name):
                raise CatalogError(f"{kind} {name[:80]!r}: a name has up to 64 letters, digits, `_`, `.` and `-`")
        return {name: read(f"{kind}.{name}", name, tables[name]) for name in sorted(tables)}

    def _registry(self, where: str, name: str, table: Mapping[str, Any]) -> Registry:
        _check_keys(where, table, ("auth_file", "members"))
        path = _text(where, table, "auth_file")
        if not path.startswith("/"):
            raise CatalogError(f"{where}: auth_file = {path!r} is not an absolute path")
        return Registry(name, path, self._audience(where, table))

    def _environment(self, where: str, name: str, table: Mapping[str, Any]) -> Environment:
        _check_keys(where, table, _KEYS)
        image, command = _text(where, table, "image"), _words(where, table, "command", WORDS_MAX)
        why = image_error(image) if image else ""
        if why:
            raise CatalogError(f"{where}: {why}")
        if not image and not command:
            raise CatalogError(f"{where} has neither an image nor a command: write one of them")
        parts = _parts(where, table)
        if parts != NO_PARTS and not image:
            raise CatalogError(f"{where}: volumes, ports and a registry are for a container: write an image")
        return Environment(
            name=name,
            description=_text(where, table, "description", DESCRIPTION_CHARACTERS_MAX),
            audience=self._audience(where, table),
            image=image,
            command=command,
            variables=_variables(where, table),
            parts=parts,
            gpus_milli=_number(where, table, "gpus", parse_gpus),
            mem_bytes=_number(where, table, "mem", parse_bytes),
            cpu_milli=_number(where, table, "cpus", _parse_cpus),
            ram_bytes=_number(where, table, "ram", parse_bytes),
            time_limit_s=_number(where, table, "time_limit", _parse_seconds),
            queue=_text(where, table, "queue"),
        )

    def _audience(self, where: str, table: Mapping[str, Any]) -> Audience:
        words = _words(where, table, "members", MEMBERS_MAX)
        keys = {word: self._find_member(word) for word in words}
        self._unknown.update((word, None) for word, key in keys.items() if not key)
        return Audience(words, frozenset(key for key in keys.values() if key))


_KEYS = (
    *("description", "image", "command", "members", "volumes", "ports", "registry", "env"),
    *("gpus", "mem", "cpus", "ram", "time_limit", "queue"),
)


def _check_keys(where: str, table: Mapping[str, Any], valid_keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in valid_keys:
            raise CatalogError(f"{where} has no key {key[:80]!r}: its keys are {', '.join(sorted(valid_keys))}")


def _text(where: str, table: Mapping[str, Any], key: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > characters_max:
        raise CatalogError(
            f"{where}: {key} = {str(value)[:80]!r} is not one line of at most {characters_max} characters"
        )
    return value


def _words(where: str, table: Mapping[str, Any], key: str, count_max: int) -> tuple[str, ...]:
    value = table.get(key, [])
    valid = isinstance(value, list) and all(isinstance(word, str) and word and "\0" not in word for word in value)
    if not valid or len(value) > count_max or any(len(word) > TEXT_CHARACTERS_MAX for word in value):
        raise CatalogError(f"{where}: {key} = {str(value)[:80]} is not a list of at most {count_max} strings")
    return tuple(value)


def _variables(where: str, table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    value = table.get("env", {})
    if not isinstance(value, dict) or len(value) > VARIABLES_MAX:
        raise CatalogError(f"{where}: env is not a table of at most {VARIABLES_MAX} variables")
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name) or not isinstance(text, str) or any(sign in text for sign in "\0\n\r"):
            raise CatalogError(f"{where}: env.{name[:80]} is not a variable: write NAME = 'value', on one line")
    return tuple(sorted(value.items()))


def _parts(where: str, table: Mapping[str, Any]) -> ContainerParts:
    volumes, ports = (_words(where, table, key, 16) for key in ("volumes", "ports"))
    try:
        parts = parse_parts(volumes, ports, _text(where, table, "registry"))
    except PartError as error:
        raise CatalogError(f"{where}: {error}") from error
    if parts.registry.startswith("/"):
        raise CatalogError(f"{where}: registry = {parts.registry!r} is a path: write the name of a [registry.NAME]")
    return parts


def _number(where: str, table: Mapping[str, Any], key: str, parse: Callable[[str], int]) -> int:
    value = table.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise CatalogError(f"{where}: {key} = {str(value)[:80]} is neither a number nor a string")
    try:
        return parse(str(value))
    except (UnitError, ValueError) as error:
        raise CatalogError(f"{where}: {key}: {error}") from error


def _parse_cpus(text: str) -> int:
    """Raises ValueError."""
    milli = round(float(text) * 1000) if _CPUS.fullmatch(text) else 0
    if not milli:
        raise ValueError(f"{text[:40]!r} is not a number of processors: write for example 2 or 2.5")
    return milli


def _parse_seconds(text: str) -> int:
    """Of 45m, 8h or 2h30m. Raises ValueError."""
    parts = _SPAN_PART.findall(text)
    seconds = sum(int(number) * _UNITS_S[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != text or not seconds:
        raise ValueError(f"{text[:40]!r} is not a time: write for example 45m, 8h or 2h30m")
    return seconds
