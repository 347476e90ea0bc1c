"""Rows on lists: order, count, min, max, head, id, and links that can be followed to both ends and back.

``_expected`` implements the rules of API.md (Lists) for a list whose items are known.
"""

from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tests.conformance.table import Row, error, get, row, rule
from tests.conformance.world import UNKNOWN_ID, Reference, World, key_of

PAGED: Final = ("/blocks", "/batches", "/transactions", "/state?address={prefix}", "/state/{prefix}")
BY_ID: Final = ("/blocks", "/batches", "/transactions")

ROWS: list[Row] = []


# One page


def _expected(total: int, count: int, first: int | None, last: int | None) -> range:
    """Indexes of the items of a page."""
    if first is None and last is not None:
        return range(max(0, last - count + 1), last + 1)
    start = first or 0
    end = total if last is None else last + 1
    return range(start, min(start + count, end))


def ask(world: World, path: str, query: str, head: str = "") -> Any:
    """The body of a page at ``head``, by default the head of the suite's last batch."""
    target = world.fill(path)
    answer = world.http.get(f"{target}{'&' if '?' in target else '?'}head={head or world.head}{query}")
    assert answer.status == 200, answer.shown()
    return answer.json


def _named(reference: Reference, index: int | None, by_key: bool) -> str:
    return "" if index is None else reference.keys[index] if by_key else str(index)


def _page(world: World, path: str, count: int | None, first: int | None, last: int | None, by_key: bool) -> None:
    reference = world.reference(path)
    # The last known index. It may be small, because the suite has few leaves of its own.
    most = min(reference.total, len(reference.keys)) - 1
    first, last = (None if index is None else min(index, most) for index in (first, last))
    query = "".join(
        f"&{name}={value}"
        for name, value in (
            ("count", "" if count is None else str(count)),
            ("min", _named(reference, first, by_key)),
            ("max", _named(reference, last, by_key)),
        )
        if value
    )
    content = ask(world, path, query)
    wanted = _expected(reference.total, 100 if count is None else count, first, last)
    paging = content["paging"]
    assert (paging["start_index"], paging["total_count"]) == (wanted.start, reference.total)
    assert len(content["data"]) == len(wanted)
    known = [reference.keys[index] for index in wanted if index <= most]
    assert [key_of(item) for item in content["data"]][: len(known)] == known
    assert content["head"] == world.head
    assert ("previous" in paging) == (wanted.start > 0)
    if first is None or last is None:
        assert ("next" in paging) == (wanted.stop < reference.total)
    assert list(paging) == [name for name in ("start_index", "total_count", "previous", "next") if name in paging]


_COMBINATIONS: Final = (
    ("none", None, None, None),
    ("count", 2, None, None),
    ("count-one", 1, None, None),
    ("count-over-total", 1000, None, None),
    ("min", None, 1, None),
    ("min-zero", None, 0, None),
    ("min-last", None, 10**6, None),
    ("min-count", 2, 1, None),
    ("max-alone", None, None, 3),
    ("max-zero", 3, None, 0),
    ("max-count", 2, None, 3),
    ("max-count-cut", 5, None, 1),
    ("max-last", 2, None, 10**6),
    ("both", None, 1, 3),
    ("both-count", 2, 1, 3),
    ("both-count-over", 10, 1, 3),
    ("both-same", None, 2, 2),
    ("both-all", None, 0, 10**6),
)
ROWS += [
    Row(
        f"api/lists/{name}{'-by-id' if by_key else ''}{path}",
        "count, min and max, both inclusive, select items, start_index, total_count, previous, next",
        partial(_page, path=path, count=count, first=first, last=last, by_key=by_key),
    )
    for path in PAGED
    for name, count, first, last in _COMBINATIONS
    for by_key in ((False,) if first is None and last is None else (False, True))
]


def _min_by_index_max_by_id(world: World, path: str) -> None:
    reference = world.reference(path)
    for query in (f"&min=1&max={reference.keys[3]}", f"&min={reference.keys[1]}&max=3"):
        assert [key_of(item) for item in ask(world, path, query)["data"]] == reference.keys[1:4]


def _count_is_cut(world: World, path: str) -> None:
    page = ask(world, path, "&count=1000000")
    assert len(page["data"]) == min(1000, page["paging"]["total_count"])
    assert len(ask(world, path, "&count=" + "9" * 400)["data"]) == len(page["data"])


for _path in PAGED:
    ROWS += [
        Row(
            f"api/lists/mixed{_path}",
            "min may be an index and max an id, and the reverse",
            partial(_min_by_index_max_by_id, path=_path),
        ),
        Row(f"api/lists/count-cut{_path}", "a count over 1000 is cut to 1000", partial(_count_is_cut, path=_path)),
    ]


@rule(ROWS, "api/lists/count-cut/1001", "a count over 1000 is cut to 1000: next of a longer list starts at index 1000")
def _(world: World) -> None:
    batch = world.batch(*(world.intkey("set", world.name(), 1) for _ in range(1001)))
    world.commit(batch)
    page = world.http.get("/transactions?count=1001").json
    assert len(page["data"]) == 1000
    assert page["paging"]["total_count"] > 1000
    assert ("min", "1000") in parse_qsl(urlsplit(page["paging"]["next"]).query)
    assert len(world.http.get(f"/transactions?id={','.join(batch.header.transaction_ids[:100])}").json["data"]) == 100


@rule(ROWS, "api/lists/count-default", "without count a page has 100 items")
def _(world: World) -> None:
    world.commit(world.batch(*(world.intkey("set", world.name(), 1) for _ in range(101))))
    assert len(world.http.get("/transactions").json["data"]) == 100


# Refusals

ROWS += [
    row(f"api/errors/53{path}/{value or 'empty'}", "a count must be a positive integer",
        get(f"{path}{'&' if '?' in path else '?'}count={value}"), error(53, "count"))
    for path in PAGED
    for value in ("0", "-1", "abc", "1.5", "", "1e3", "0x10", "%D9%A1", "00", "%201")
] + [
    row(f"api/errors/54{path}/{name[:20]}", "a min or max that names nothing in the list is refused",
        get(f"{path}{'&' if '?' in path else '?'}{name}"), error(54, name.partition("=")[0]))
    for path in PAGED
    for name in (f"min={UNKNOWN_ID}", f"max={UNKNOWN_ID}", "min=abc", "max=abc", "min=-1", "max=-1", "min=1000000000",
                 "max=1000000000", "min=" + "9" * 30, "min=", "max=", "min=1.5")
] + [
    row(f"api/errors/50{path}/{value[:12]}", "a head that names no block is refused, and the message names the head",
        get(f"{path}{'&' if '?' in path else '?'}head={value}"), error(50, value))
    for path in (*PAGED, "/state", "/state/{address}")
    for value in (UNKNOWN_ID, "1000000000", "abc", "-1", "1.5")
] + [
    row(f"api/errors/50{path}/empty", "an empty head names no block",
        get(f"{path}{'&' if '?' in path else '?'}head="), error(50))
    for path in (*PAGED, "/state/{address}")
]  # fmt: skip


def _min_after_max(world: World, path: str) -> None:
    reference = world.reference(path)
    joint = "&" if "?" in path else "?"
    for low, high in (("3", "1"), (reference.keys[3], reference.keys[1]), ("3", reference.keys[1])):
        answer = world.http.get(f"{world.fill(path)}{joint}head={world.head}&min={low}&max={high}")
        error(54, "min", "max")(answer, world)


def _past_the_end(world: World, path: str) -> None:
    total = world.reference(path).total
    joint = "&" if "?" in path else "?"
    for name in ("min", "max"):
        answer = world.http.get(f"{world.fill(path)}{joint}head={world.head}&{name}={total}")
        error(54, name, str(total))(answer, world)
        assert len(ask(world, path, f"&{name}={total - 1}&count=1")["data"]) == 1


def _not_yet(world: World, path: str) -> None:
    reference = world.reference(path)
    answer = world.http.get(f"{path}?head={world.fill('{first_head}')}&min={reference.keys[0]}")
    error(54, "min")(answer, world)


for _path in PAGED:
    ROWS += [
        Row(
            f"api/errors/54{_path}/min-after-max",
            "a min that comes after max is refused",
            partial(_min_after_max, path=_path),
        ),
        Row(
            f"api/errors/54{_path}/past-the-end",
            "an index past the list's last item is refused",
            partial(_past_the_end, path=_path),
        ),
    ]
ROWS += [
    Row(f"api/errors/54{path}/after-head", "an id of an item after head is refused", partial(_not_yet, path=path))
    for path in BY_ID
]
