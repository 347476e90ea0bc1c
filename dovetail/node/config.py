"""The configuration of a node's parts, from a TOML file, then the environment, then flags; the later wins.

Every value is checked before anything starts. The refusal of a wrong value has its key, its origin and the allowed
values. The meaning of the values is documented with the types of each part.
"""

import difflib
import os
import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from dovetail.common.errors import Refused
from dovetail.common.home import default_data_dir, node_key_file, shown
from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig, networks
from dovetail.validator.config import ValidatorConfig

_FILE_BYTES_MAX: Final = 1024 * 1024
_PREFIX: Final = "DOVETAIL_"
_OCCUPANCY_MAX: Final = 100_000
_BUILD_ID_CHARACTERS_MAX: Final = 256


@dataclass(frozen=True)
class ProcessorConfig:
    """The settings of a processor."""

    connect: str = "tcp://127.0.0.1:4004"
    """The validator's endpoint."""

    max_occupancy: int = 4_096
    """The most transactions that a worker may hold unfinished."""

    workers: int = 1
    """Processes that apply transactions, each with its own connection."""

    apply_timeout_ms: int = 10_000
    """The time limit of one apply."""

    memory_mib_max: int = 0
    """The address space of each worker, in MiB; 0 for no limit."""

    build_id: str = ""
    """A name of this build for people; if it is empty, each family's own version or digest is used."""

    metrics: str = ""
    """The address of /metrics, as HOST:PORT; empty for none."""

    validator_key: str = ""
    """The file of the validator's public connection key; empty if its port asks for no key."""

    connection_key: str = ""
    """The file of this processor's secret connection key; set both keys or neither."""


class Config(NamedTuple):
    """The configuration of every part. All parts on a machine can share one file."""

    validator: ValidatorConfig
    rest_api: RestConfig
    processor: ProcessorConfig


class Flag(NamedTuple):
    """A value from the command line; None if the flag was not given."""

    name: str
    value: object


class _Setting(NamedTuple):
    value: object
    origin: str
    is_text: bool = False


class _Rule(NamedTuple):
    """Whether a value of the right type is allowed, and a text that describes the allowed values."""

    permits: Callable[[Any], bool]
    allowed: str


_TABLES: Final[dict[str, type]] = {
    "validator": ValidatorConfig,
    "rest_api": RestConfig,
    "processor": ProcessorConfig,
    "limits": Limits,
}


def _is_address(text: str) -> bool:
    """HOST:PORT, with an IPv6 host in brackets."""
    try:
        parts = urlsplit(f"//{text}")
        return bool(parts.hostname and parts.port) and parts.netloc == text and "@" not in text
    except ValueError:
        return False


def _is_endpoint(text: str) -> bool:
    return text.startswith("tcp://") and _is_address(text.removeprefix("tcp://").replace("*", "0.0.0.0"))


def _are_networks(entries: tuple[str, ...]) -> bool:
    try:
        return len(networks(entries)) == len(entries)
    except ValueError:
        return False


_has_peer_host = re.compile(r"tcp://(\[[0-9A-Za-z:.%_-]+\]|[0-9A-Za-z][0-9A-Za-z._-]*):[0-9]+").fullmatch
_ENDPOINT: Final = _Rule(_is_endpoint, "tcp://HOST:PORT, PORT from 1 to 65535, an IPv6 host in brackets")
_PEER: Final = _Rule(
    lambda text: _is_endpoint(text) and _has_peer_host(text) is not None,
    "tcp://HOST:PORT, HOST no *, PORT from 1 to 65535, an IPv6 host in brackets",
)
_ADDRESS: Final = _Rule(_is_address, "HOST:PORT, PORT from 1 to 65535, an IPv6 host in brackets")
_SECONDS: Final = _Rule(lambda seconds: 1 <= seconds <= 86_400, "a whole number of seconds from 1 to 86400")
_POSITIVE: Final = _Rule(lambda number: 1 <= number < 2**63, "a whole number from 1")

_RULES: Final[dict[str, _Rule]] = {
    "limits.comparisons_a_minute_max": _Rule(lambda number: 0 <= number <= 60_000, "a whole number from 0 to 60000"),
    "validator.bind": _ENDPOINT,
    "validator.verifier_processes": _Rule(lambda number: 0 <= number <= 256, "a whole number from 0 to 256"),
    "validator.state_depth_blocks": _Rule(
        lambda number: number == 0 or 2 <= number < 2**63, "0 for all states, or a whole number of blocks from 2"
    ),
    "rest_api.bind": _ADDRESS,
    "rest_api.validator": _PEER,
    "rest_api.timeout_s": _SECONDS,
    "rest_api.request_s_max": _SECONDS,
    "rest_api.answer_s_max": _SECONDS,
    "rest_api.trusted_proxies": _Rule(
        _are_networks, "a list of addresses or networks (10.0.0.0/8), in the environment separated by commas"
    ),
    "processor.connect": _PEER,
    "processor.max_occupancy": _Rule(
        lambda number: 1 <= number <= _OCCUPANCY_MAX, f"a whole number from 1 to {_OCCUPANCY_MAX}"
    ),
    "processor.workers": _Rule(lambda number: 1 <= number <= 256, "a whole number from 1 to 256"),
    "processor.apply_timeout_ms": _Rule(
        lambda number: 1 <= number <= 86_400_000, "a whole number of milliseconds from 1 to 86400000"
    ),
    "processor.memory_mib_max": _Rule(
        lambda number: number == 0 or 256 <= number <= 2**40, "0 for no limit, or a whole number of MiB from 256"
    ),
    "processor.build_id": _Rule(
        lambda text: len(text) <= _BUILD_ID_CHARACTERS_MAX and (not text or text.isprintable()),
        f"at most {_BUILD_ID_CHARACTERS_MAX} printable characters",
    ),
    "processor.metrics": _Rule(lambda text: not text or _is_address(text), _ADDRESS.allowed),
}

_KINDS: Final[dict[object, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
}

# Kubernetes puts the addresses of a service named "dovetail-…" into the environment of other containers.
_is_service_link = re.compile(
    r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)"
).fullmatch

T = TypeVar("T")


def load(*, config_file: Path | None, flags: Mapping[str, Flag], environ: Mapping[str, str] = os.environ) -> Config:
    """The whole configuration. ``flags``: by ``table.key``, as in ``validator.bind``. Raises Refused.

    Relative paths start at the current folder.
    """
    settings: dict[str, _Setting] = {}
    if config_file is not None:
        settings.update(_from_file(config_file))
    settings.update(_from_environment(environ))
    settings.update(
        {
            key: _Setting(str(flag.value) if isinstance(flag.value, Path) else flag.value, f"flag {flag.name}")
            for key, flag in flags.items()
            if flag.value is not None
        }
    )
    _refuse_one_key_alone(settings)
    limits = _build(Limits, "limits", settings)
    if misfit := limits.misfit():
        raise Refused(f"limits: {misfit}")
    data_dir = settings.setdefault("validator.data_dir", _Setting(str(default_data_dir(environ)), "the default"))
    settings.setdefault("validator.key_file", _Setting(str(node_key_file(Path(str(data_dir.value)))), "the default"))
    return Config(
        validator=_build(ValidatorConfig, "validator", settings, limits=limits),
        rest_api=_build(RestConfig, "rest_api", settings, limits=limits),
        processor=_build(ProcessorConfig, "processor", settings),
    )


def _refuse_one_key_alone(settings: Mapping[str, _Setting]) -> None:
    for table in ("rest_api", "processor"):
        pair = {key: settings.get(f"{table}.{key}") for key in ("validator_key", "connection_key")}
        given = [setting for setting in pair.values() if setting is not None and setting.value]
        if len(given) == 1:
            raise Refused(f"{table}: {' and '.join(pair)} go together, and only one is set ({given[0].origin})")


def _from_file(file: Path) -> dict[str, _Setting]:
    name = shown(file)
    try:
        with file.open("rb") as stream:
            content = stream.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Refused(f"cannot read the configuration {name}: {error.strerror}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise Refused(f"the configuration {name} is over {_FILE_BYTES_MAX} bytes")
    try:
        tables = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{name} is no TOML: {error}") from None
    settings = {}
    for table, entries in tables.items():
        if table not in _TABLES:
            raise Refused(f"{name}: unknown table [{table}]{_nearest(table, _TABLES)}")
        if not isinstance(entries, dict):
            raise Refused(f"{name}: {table} = {entries!r} is no table; write [{table}] on a line of its own")
        for key, value in entries.items():
            if key not in _keys(table):
                raise Refused(f"{name}: unknown key {key} in [{table}]{_nearest(key, _keys(table))}")
            settings[f"{table}.{key}"] = _Setting(value, name)
    return settings


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Setting]:
    known = {f"{_PREFIX}{table}_{key}".upper(): f"{table}.{key}" for table in _TABLES for key in _keys(table)}
    prefixes = tuple(f"{_PREFIX}{table}_".upper() for table in _TABLES)
    settings = {}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or _is_service_link(variable):
            continue
        if variable in known:
            settings[known[variable]] = _Setting(value, f"environment variable {variable}", is_text=True)
        elif variable.startswith(prefixes) or difflib.get_close_matches(variable, known, 1, 0.9):
            raise Refused(f"unknown environment variable {variable}{_nearest(variable, known)}")
    return settings


def _keys(table: str) -> list[str]:
    return [field.name for field in fields(_TABLES[table]) if field.name != "limits"]


def _nearest(word: str, known: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(word, known := list(known), 1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"


def _build(kind: type[T], table: str, settings: Mapping[str, _Setting], **given: object) -> T:
    hints = typing.get_type_hints(kind)
    values = {
        key: _convert(f"{table}.{key}", settings[f"{table}.{key}"], hints[key])
        for key in _keys(table)
        if f"{table}.{key}" in settings
    }
    return kind(**values, **given)


def _convert(key: str, setting: _Setting, hint: Any) -> object:
    raw, rule = setting.value, _RULES.get(key)
    if rule is None and hint is int:
        rule = _POSITIVE
    if setting.is_text and typing.get_origin(hint) is tuple:
        raw = [entry.strip() for entry in str(raw).split(",") if entry.strip()]
    allowed = rule.allowed if rule else _KINDS.get(hint, str(hint))
    try:
        value = msgspec.convert(raw, hint, strict=not setting.is_text, dec_hook=_path)
    except (msgspec.ValidationError, UnicodeEncodeError):
        # The environment may hold bytes that are not UTF-8.
        value = None
    if value is None or (rule is not None and not rule.permits(value)):
        raise Refused(f"{key} = {setting.value!r} ({setting.origin}): must be {allowed}")
    return value


def _path(kind: type, raw: object) -> object:
    if kind is Path and isinstance(raw, str) and raw and "\0" not in raw:
        return Path(raw).expanduser()
    raise ValueError("no path")
