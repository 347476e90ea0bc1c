"""Lists by index and by id: where an entry stands, over the numbers that the store gives to all that a chain holds.

Which lists there are, and how a page of one is cut, stands in ``queries``. Reads only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dovetail.ledger.ids import is_id
from dovetail.validator.store import BlockInfo, Store


class List(NamedTuple):
    """A list at one head: how long it is, where an id stands in it, and its items at neighbouring indexes.

    The indexes rise or fall by one. ``number`` is what an entry is kept under, for its id, and ``item`` reads it by
    that. ``kept_together``: whether entries of neighbouring numbers cost less to read one after the other.
    """

    total: int
    position: Callable[[str], int | None]
    items: Callable[[range], Iterator[bytes]]
    number: Callable[[str], int | None]
    item: Callable[[int], bytes]
    kept_together: bool = False


def newest_block_first(
    total: int,
    number_of: Callable[[str], int | None],
    neighbours: Callable[[int], range],
    raw: Callable[[int], bytes],
) -> List:
    """The first ``total`` entries of a numbered kind, blocks from the newest on, each block in its own order.

    ``neighbours``: the numbers of all entries in the block that holds a number.
    """

    def number(text: str) -> int | None:
        found = number_of(text) if is_id(text) else None
        return None if found is None or found >= total else found

    def position(text: str) -> int | None:
        named = number(text)
        if named is None:
            return None
        block = neighbours(named)
        return total - block.stop + named - block.start

    def items(indexes: range) -> Iterator[bytes]:
        for index in indexes:
            # Entry ``left - 1`` is in the same block, and stands where the list would if that ran backwards too.
            left = total - index
            block = neighbours(left - 1)
            yield raw(block[block.stop - left])

    return List(total, position, items, number, raw)


def block_finder(
    store: Store, search: Callable[[int], BlockInfo], held: Callable[[BlockInfo], range]
) -> Callable[[int], range]:
    """The numbers of all entries in the block that holds a number.

    Numbers of a page come one after the other: the block of the last one is kept, and the one beside it is looked at
    before ``search``, which costs O(log n). ``held``: the numbers of the entries of a block.
    """
    kept: BlockInfo | None = None

    def find(number: int) -> range:
        nonlocal kept
        if kept is not None and number not in held(kept):
            beside = store.block(kept.num + (1 if number >= held(kept).stop else -1))
            kept = beside if beside is not None and number in held(beside) else None
        if kept is None:
            kept = search(number)
        return held(kept)

    return find


def chosen(listed: List, ids: Sequence[str], bytes_max: int) -> List:
    """The entries of a list that ``ids`` name, in their order; ids that name nothing are dropped.

    No page takes more than ``bytes_max`` of them, or one.
    """
    found = [(text, number) for text, number in ((text, listed.number(text)) for text in ids) if number is not None]
    order = [text for text, _ in found]

    def items(indexes: range) -> Iterator[bytes]:
        numbers = [found[index][1] for index in indexes]
        return iter(_gathered(listed.item, numbers, bytes_max)) if listed.kept_together else map(listed.item, numbers)

    return listed._replace(
        total=len(found), position=lambda text: order.index(text) if text in order else None, items=items
    )


def _gathered(item: Callable[[int], bytes], numbers: list[int], bytes_max: int) -> list[bytes]:
    """The items of ``numbers``, in their order, read in the order in which they are kept.

    The first of them, one at least: what stands behind ``bytes_max`` of others is let go, so that no more is held.
    """
    held: dict[int, bytes] = {}
    end, size = len(numbers), 0
    for place in sorted(range(len(numbers)), key=numbers.__getitem__):
        if place < end:
            held[place] = item(numbers[place])
            size += len(held[place])
            while size > bytes_max and len(held) > 1:
                end = max(held)
                size -= len(held.pop(end))
    return [held[place] for place in range(end)]
