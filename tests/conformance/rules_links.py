"""Rows on the links of lists: they name the head, keep the caller's parameters, and lead to both ends and back."""

from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tests.conformance.rules_lists import BY_ID, PAGED, ask
from tests.conformance.table import Row, assert_link
from tests.conformance.world import World, key_of

_PAGES_MAX: Final = 30

ROWS: list[Row] = []


def _link_names_the_head(world: World, path: str) -> None:
    target = world.fill(path)
    joint = "&" if "?" in target else "?"
    answer = world.http.get(f"{target}{joint}count=2&sort=-x&mine=a%20b%26c&min=0")
    path_only, _, own = target.partition("?")
    own = f"{own}&" if own else ""
    wanted = f"{path_only}?head={answer.json['head']}&{own}count=2&sort=-x&mine=a%20b%26c&min=0"
    assert_link(answer.json["link"], world.http.url, wanted)
    followed = world.http.follow(answer.json["link"])
    assert followed.json == answer.json


def _link_replaces_the_head(world: World, path: str) -> None:
    target = world.fill(path)
    path_only, _, own = target.partition("?")
    own = f"{own}&" if own else ""
    for name in (world.names["head_num"], world.head):
        answer = world.http.get(f"{path_only}?{own}count=2&head={name}")
        assert answer.json["head"] == world.head
        assert_link(answer.json["link"], world.http.url, f"{path_only}?head={world.head}&{own}count=2")


def walk(world: World, path: str, query: str, head: str = "") -> None:
    """Follow the links of a page to both ends and back."""
    page = ask(world, path, query, head)
    total = page["paging"]["total_count"]
    own = {name: value for name, value in parse_qsl(query) if name not in ("head", "min", "max")}
    # Backwards to the beginning, on to the end, and back again.
    page = to_the_end(world, page, "previous", own)[-1]
    assert page["paging"]["start_index"] == 0
    pages = to_the_end(world, page, "next", own)
    keys = [key_of(item) for entry in pages for item in entry["data"]]
    assert len(keys) == len(set(keys)) == total
    back = to_the_end(world, pages[-1], "previous", own)
    assert [key_of(item) for entry in reversed(back) for item in entry["data"]] == keys


def to_the_end(world: World, page: Any, name: str, own: dict[str, str]) -> list[Any]:
    """The page, and all pages that its links called ``name`` lead to, one after the other."""
    pages = [page]
    while name in page["paging"]:
        link = page["paging"][name]
        found = dict(parse_qsl(urlsplit(link).query))
        assert found["head"] == page["head"]
        assert own.items() <= found.items()
        last, page = page, world.http.follow(link).json
        assert page["data"]
        assert page["head"] == last["head"]
        assert page["paging"]["total_count"] == last["paging"]["total_count"]
        before, after = (last, page) if name == "next" else (page, last)
        assert before["paging"]["start_index"] + len(before["data"]) == after["paging"]["start_index"]
        pages.append(page)
        assert len(pages) <= 1000
    return pages


def _walk_from(world: World, path: str, count: int, start: str) -> None:
    # The suite has few leaves of its own. Lists of the chain are walked at an early head only.
    head = world.short_head if path in BY_ID else world.head
    reference = world.reference(path, head)
    count = max(count, reference.total // _PAGES_MAX)
    walk(world, path, f"&count={count}" + start.format(id1=reference.keys[1], id3=reference.keys[3]), head)


for _path in PAGED:
    ROWS += [
        Row(
            f"api/lists/link{_path}",
            "link names the head that was read and keeps the caller's parameters; following link gives the same answer",
            partial(_link_names_the_head, path=_path),
        ),
        Row(
            f"api/lists/link-head{_path}",
            "link has the head's id in the place of the caller's head",
            partial(_link_replaces_the_head, path=_path),
        ),
    ]
    for _count in (1, 2, 3, 100):
        for _start in ("", "&min=1", "&max=3", "&min=1&max=3", "&min={id3}", "&max={id3}", "&min={id1}&max={id3}",
                       "&min=0", "&max=0", "&min=2&max=2"):  # fmt: skip
            ROWS.append(
                Row(
                    f"api/lists/walk{_path}/count={_count}{_start}",
                    "previous and next can be followed to both ends and back: every item once, in the same order",
                    partial(_walk_from, path=_path, count=_count, start=_start),
                )
            )


def _next_between(world: World, path: str) -> None:
    """Follow ``next`` from min to max."""
    reference = world.reference(path)
    page = ask(world, path, f"&count=1&min=1&max={reference.keys[3]}")
    keys = [key_of(item) for entry in to_the_end(world, page, "next", {}) for item in entry["data"]]
    assert keys == reference.keys[1:4]


ROWS += [
    Row(
        f"api/lists/next-between{path}",
        "with min and max, next leads up to max and is absent there",
        partial(_next_between, path=path),
    )
    for path in PAGED
]
