"""What a node says of its families and processors, as the commands here take it: asked for, and checked at the door."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail.common.errors import Refused
from dovetail.common.urls import misread

if TYPE_CHECKING:
    from dovetail.client import DovetailClient

_NOT_FOUND: Final = 404
_PERMISSIONS: Final = ("permitted", "waiting", "ended", "not_permitted")
_MIGRATIONS: Final = ("none", "due", "done", "refused")
_UNMADE: Final = ("due", "refused")


class Told(NamedTuple):
    """One look at a node.

    ``families``: entries of /status/families, each with ``builds``: how many of the processors that take its work are
    of each build. ``namespaces``: those that connected processors declare for a family of this name, whatever its
    version.
    """

    head_num: int
    restricted: bool
    families: list[dict[str, Any]]
    namespaces: Mapping[str, frozenset[str]]

    def entry(self, name: str, version: str) -> dict[str, Any] | None:
        """What is said of one version; None where it is not known."""
        found = (each for each in self.families if (each["family_name"], each["family_version"]) == (name, version))
        return next(found, None)

    def unmade(self, name: str) -> list[dict[str, Any]]:
        """The versions of a family whose migration is in no block."""
        return [each for each in self.families if each["family_name"] == name and each["migration"] in _UNMADE]


def ask(client: "DovetailClient") -> Told:
    """Raises Refused: also of a node that knows neither /status/families nor /status/processors, and of nonsense."""
    told = _data(client, lambda: client.data("/status/families"), "/status/families")
    processors = _data(client, lambda: client.resource("status", "processors"), "/status/processors")
    try:
        served: dict[tuple[str, str], Counter[str]] = {}
        namespaces: dict[str, set[str]] = {}
        for processor in processors:
            for family in processor["families"]:
                name = family["family_name"]
                namespaces.setdefault(name, set()).update(map(_text, family["namespaces"]))
                if processor["state"] == "takes_work":
                    builds = served.setdefault((name, family["family_version"]), Counter())
                    builds[_text(family["build_id"])] += 1
        families = [_family(entry) for entry in told["families"]]
        for entry in families:
            entry["builds"] = dict(served.get((entry["family_name"], entry["family_version"]), {}))
        return Told(
            _number(told["head_num"]),
            bool(told["restricted"]),
            families,
            {name: frozenset(among) for name, among in namespaces.items()},
        )
    except (LookupError, TypeError, AttributeError, ValueError):
        raise Refused(misread(client.url)) from None


def committed_by_family(client: "DovetailClient") -> dict[str, int]:
    """How many transactions of each family, by ``name:version``, were committed since the node started."""
    stats = client.data("/stats/validator")
    try:
        return {text: _number(totals["transactions"]["committed"]) for text, totals in stats.items() if text.count(":")}
    except (LookupError, TypeError):
        raise Refused(misread(client.url)) from None


def _data(client: "DovetailClient", get: Callable[[], Any], path: str) -> Any:
    from dovetail.client import ApiError

    try:
        return get()
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        raise Refused(
            f"{client.url} has no {path}: it is an older Dovetail, or none; upgrade that node first"
        ) from None


def _family(entry: Any) -> dict[str, Any]:
    """One entry of /status/families. Raises LookupError, TypeError or ValueError for what is none."""
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
    from dovetail.ledger.permitted import BLOCK_NUM_MAX

    if type(value) is not int or not 0 <= value <= BLOCK_NUM_MAX:
        raise TypeError
    return value
