"""Requests the state of families and processors from a node, and checks the answer."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dovetail.client import ApiError, DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.urls import misread
from dovetail.ledger.permitted import BLOCK_NUM_MAX

_NOT_FOUND: Final = 404
_PERMISSIONS: Final = ("permitted", "waiting", "ended", "not_permitted")
_MIGRATIONS: Final = ("none", "due", "done", "refused")
_UNMIGRATED: Final = ("due", "refused")


class NodeFamilies(NamedTuple):
    """The families of a node at one moment.

    ``families``: entries of /status/families. Each has an added member ``builds``: the number of processors that take
    work, by build. ``namespaces``: those that connected processors of any version declare, by family name.
    """

    head_num: int
    restricted: bool
    families: list[dict[str, Any]]
    namespaces: Mapping[str, frozenset[str]]

    def entry(self, name: str, version: str) -> dict[str, Any] | None:
        """The entry of one version; None if the node does not know it."""
        found = (each for each in self.families if (each["family_name"], each["family_version"]) == (name, version))
        return next(found, None)

    def unmigrated(self, name: str) -> list[dict[str, Any]]:
        """The entries of a family's versions whose migration is in no block."""
        return [each for each in self.families if each["family_name"] == name and each["migration"] in _UNMIGRATED]


def read_families(client: DovetailClient) -> NodeFamilies:
    """The families of a node. Raises Refused, also if a resource is missing or an answer is malformed."""
    answer = _data(client, lambda: client.data("/status/families"), "/status/families")
    processors = _data(client, lambda: client.resource("status", "processors"), "/status/processors")
    try:
        served: dict[tuple[str, str], Counter[str]] = {}
        namespaces: dict[str, set[str]] = {}
        for processor in processors:
            for family in processor["families"]:
                name = family["family_name"]
                namespaces.setdefault(name, set()).update(map(_text, family["namespaces"]))
                if processor["state"] == "takes_work" and not family.get("idle"):
                    builds = served.setdefault((name, family["family_version"]), Counter())
                    builds[_text(family["build_id"])] += 1
        families = [_family(entry) for entry in answer["families"]]
        for entry in families:
            entry["builds"] = dict(served.get((entry["family_name"], entry["family_version"]), {}))
        return NodeFamilies(
            _number(answer["head_num"]),
            bool(answer["restricted"]),
            families,
            {name: frozenset(among) for name, among in namespaces.items()},
        )
    except (LookupError, TypeError, AttributeError, ValueError):
        raise Refused(misread(client.url)) from None


def committed_by_family(client: DovetailClient) -> dict[str, int]:
    """The transactions committed since the node started, by ``name:version``. Raises Refused."""
    stats = client.data("/stats/validator")
    try:
        return {text: _number(totals["transactions"]["committed"]) for text, totals in stats.items() if text.count(":")}
    except (LookupError, TypeError):
        raise Refused(misread(client.url)) from None


def _data(client: DovetailClient, get: Callable[[], Any], path: str) -> Any:
    try:
        return get()
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        raise Refused(
            f"{client.url} has no {path}: it is an older Dovetail, or none; upgrade that node first"
        ) from None


def _family(entry: Any) -> dict[str, Any]:
    """An entry of /status/families, checked. Raises LookupError, TypeError or ValueError if it is malformed."""
    if entry["permission"] not in _PERMISSIONS or entry["migration"] not in _MIGRATIONS:
        raise ValueError
    for name in ("family_name", "family_version"):
        _text(entry[name])
    for name in ("processors", "migrating_processors"):
        _number(entry[name])
    for name in ("from_block", "until_block"):
        if name in entry or (name == "from_block" and entry["permission"] == "waiting"):
            _number(entry[name])
    _text(entry.get("migration_message", ""))
    prefixes: Sequence[Any] = entry["migrates"]
    return {
        **entry,
        "migrates": list(map(_text, prefixes)),
        "pending": {_text(reason): _number(batches) for reason, batches in entry["pending"].items()},
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= BLOCK_NUM_MAX:
        raise TypeError
    return value
