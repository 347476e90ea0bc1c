"""Renders the files of a new family from ``dovetail/cli/templates``, and writes them.

``payload_pb2.py`` is generated here as protoc 26 would, so that a new project needs no protoc.
"""

import keyword
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from dovetail.common.errors import Refused
from dovetail.ledger.addresses import namespace_of

NAME_CHARACTERS_MAX: Final = 30

_OURS: Final = {"protos", "processor_sdk", "families", "dovetail"}
_TAKEN: Final = {
    **dict.fromkeys(("intkey", "settings", "sawtooth_settings"), "a bundled family has this name"),
    "dovetail_ledger": "Dovetail's distribution has this name",
    **dict.fromkeys(("tests", "deploy"), "the project has a folder with this name"),
    **dict.fromkeys(
        ("build", "conftest", "dist", "docs", "env", "node_modules", "setup", "src", "venv"),
        "tools expect something else than a package under this name",
    ),
}
_SUFFIX: Final = ".in"
_is_name = re.compile(rf"[a-z][a-z0-9_]{{0,{NAME_CHARACTERS_MAX - 1}}}").fullmatch
_value = re.compile(r"\{\{(\w+)\}\}")
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_ESCAPES: Final = {
    ord("\n"): r"\n",
    ord("\r"): r"\r",
    ord("\t"): r"\t",
    ord('"'): r"\"",
    ord("'"): r"\'",
    ord("\\"): r"\\",
}

_PROTOBUF_ONLY: Final = {
    "lint_extra": ', "types-protobuf>=5.26"',
    "ruff_extra": '\nextend-exclude = ["*_pb2.py", "*_pb2.pyi"]',
    "mypy_extra": '\n\n[[tool.mypy.overrides]]\nmodule = "*.payload_pb2"\nignore_errors = true',
}
"""Lines of pyproject.toml that only the protobuf encoding needs."""


class Encoding(StrEnum):
    """How a new family's payloads and state entries are encoded."""

    CBOR = "cbor"
    JSON = "json"
    PROTOBUF = "protobuf"


def check_name(name: str) -> None:
    """Raise Refused, with the rule, if ``name`` cannot be a family's package."""
    rule = f"1 to {NAME_CHARACTERS_MAX} lower-case letters, digits and '_', a letter first"
    if not _is_name(name):
        raise Refused(f"{name!r} cannot be the name of a family's package: {rule}, as in my_family")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        reason = "it is a keyword of Python"
    elif name in sys.stdlib_module_names:
        reason = "a module of Python's standard library has this name, and imports would confuse the two"
    elif name in _OURS:
        reason = "a package of Dovetail has this name, and imports would confuse the two"
    elif name in _TAKEN:
        reason = _TAKEN[name]
    elif (found := _importable(name)) is not None:
        reason = f"imports would find {found}"
    else:
        return
    raise Refused(f"{name!r} cannot be the name of a family's package: {reason}; choose another, as in my_family")


def _importable(name: str) -> str | None:
    """The place where an import finds ``name``. A folder here does not count: it may be the project itself."""
    spec = find_spec(name)
    if spec is None:
        return None
    places = [place for place in spec.submodule_search_locations or () if Path(place).parent != Path.cwd()]
    return spec.origin or next(iter(places), None)


def render(name: str, encoding: Encoding) -> dict[str, str]:
    """The project's files: content by relative path, with ``/``. ``name`` must have passed ``check_name``."""
    values = _values(name, encoding)
    folders = ("family", "protobuf" if encoding is Encoding.PROTOBUF else "dataclass")
    templates = resources.files("dovetail.cli") / "templates"
    return {
        _path(path, name): _value.sub(lambda found: str(values[found[1]]), template.read_text(encoding="utf-8"))
        for folder in folders
        for path, template in _files(templates / folder)
    }


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Write all of ``files`` to ``folder``, or none. The folder must be missing or empty. Raises Refused."""
    there = _is_there(folder)
    # The stage is on the same disk as the folder, so that the last step is a rename.
    stage = (folder if there else folder.parent) / f".{folder.name}.{secrets.token_hex(4)}"
    done: list[Path] = []
    try:
        try:
            for path, content in files.items():
                (stage / path).parent.mkdir(parents=True, exist_ok=True)
                (stage / path).write_text(content, encoding="utf-8")
            if there:
                # Keep the folder itself: it may be a shell's current folder.
                done.extend(entry.rename(folder / entry.name) for entry in sorted(stage.iterdir()))
            else:
                stage.rename(folder)
            done.clear()
        finally:
            for left in (stage, *done):
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    except OSError as error:
        raise Refused(f"cannot write {folder}: {error.strerror}") from None


def _is_there(folder: Path) -> bool:
    try:
        if any(folder.iterdir()):
            raise Refused(f"{folder} exists and is not empty: nothing was written; choose another folder with --dir")
    except FileNotFoundError:
        if not folder.parent.is_dir():
            raise Refused(f"there is no folder {folder.parent}: make it first, or choose another with --dir") from None
        return False
    except NotADirectoryError:
        raise Refused(f"{folder} is no folder: nothing was written; choose another with --dir") from None
    except OSError as error:
        raise Refused(f"cannot read {folder}: {error.strerror}") from None
    return True


def _files(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield above + entry.name.removesuffix(_SUFFIX), entry


def _path(path: str, name: str) -> str:
    if path == "gitignore":
        # Git would apply a template named .gitignore to this repository.
        return ".gitignore"
    return re.sub(r"\bname\b", name, path)


def _values(name: str, encoding: Encoding) -> dict[str, object]:
    common: dict[str, object] = {
        "name": name,
        "namespace": namespace_of(name),
        "encoding": f"application/{encoding}",
        "encoding_words": {"cbor": "CBOR", "json": "JSON", "protobuf": "protobuf"}[encoding],
    }
    if encoding is Encoding.PROTOBUF:
        return common | _PROTOBUF_ONLY | _generated(name)
    codec = "CborCodec" if encoding is Encoding.CBOR else "JsonCodec"
    return (
        common
        | dict.fromkeys(_PROTOBUF_ONLY, "")
        | {"codec": codec, "codec_imports": ", ".join(sorted(("Codec", codec)))}
    )


def _generated(name: str) -> dict[str, object]:
    """The values of the generated module: the descriptor of payload.proto, and the offsets of its messages."""
    text, action = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_ENUM
    payload = DescriptorProto(name="Payload")
    payload.field.add(name="action", number=1, label=1, type=action, type_name=f".{name}.Payload.Action")
    for number, field in enumerate(("name", "to"), 2):
        payload.field.add(name=field, number=number, label=1, type=text)
    actions = payload.enum_type.add(name="Action")
    for number, word in enumerate(("UNSET", "CLAIM", "TRANSFER")):
        actions.value.add(name=word, number=number)
    entry = DescriptorProto(name="Entry")
    for number, field in enumerate(("name", "owner"), 1):
        entry.field.add(name=field, number=number, label=1, type=text)
    file = FileDescriptorProto(
        name=f"{name}/payload.proto", package=name, message_type=[payload, entry], syntax="proto3"
    ).SerializeToString(deterministic=True)
    values: dict[str, object] = {"descriptor": _escaped(file)}
    for key, part in (("payload", payload), ("action", actions), ("entry", entry)):
        raw = part.SerializeToString(deterministic=True)
        start = file.index(raw)
        values |= {f"{key}_start": start, f"{key}_end": start + len(raw)}
    return values


def _escaped(data: bytes) -> str:
    """``data`` in protoc's notation. A hex digit after an escape is escaped too, because it would extend the escape."""
    written: list[str] = []
    after_hex = False
    for byte in data:
        plain = 32 <= byte < 127 and not (after_hex and byte in _HEX_DIGITS)
        after_hex = byte not in _ESCAPES and not plain
        written.append(_ESCAPES.get(byte) or (chr(byte) if plain else f"\\x{byte:02x}"))
    return "".join(written)
