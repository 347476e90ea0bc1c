"""Lists by index and by id, computed from the numbers that the store gives to blocks, batches and transactions.

``queries`` defines the lists and cuts their pages. Reads only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dovetail.ledger.ids import is_id
from dovetail.validator.store import BlockInfo, Store


class List(NamedTuple):
    """A list at one head.

    ``position``: the index of an id. ``items``: the entries at a range of indexes with step 1 or -1. ``number``: the
    store's number of an id. ``item``: the entry with a number. ``in_batches``: reading entries with neighbouring
    numbers one after the other is cheaper.
    """

    total: int
    position: Callable[[str], int | None]
    items: Callable[[range], Iterator[bytes]]
    number: Callable[[str], int | None]
    item: Callable[[int], bytes]
    in_batches: bool = False


def newest_block_first(
    total: int, number_of: Callable[[str], int | None], neighbours: Callable[[int], range], raw: Callable[[int], bytes]
) -> List:
    """The entries with numbers below ``total``: blocks from the newest on, each block in its own order.

    ``neighbours``: for a number, the numbers of all entries in the same block.
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
            # Entry ``left - 1`` is in the same block as the wanted entry, but each block keeps its own order in the
            # list.
            left = total - index
            block = neighbours(left - 1)
            yield raw(block[block.stop - left])

    return List(total, position, items, number, raw)


def block_finder(
    store: Store, search: Callable[[int], BlockInfo], held: Callable[[BlockInfo], range]
) -> Callable[[int], range]:
    """Returns a function from an entry's number to the numbers of all entries in its block.

    The numbers of a page are consecutive, so the function tries the last block and its neighbour before ``search``,
    which costs O(log n). ``held``: for a block, the numbers of its entries.
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


def select(listed: List, ids: Sequence[str], bytes_max: int) -> List:
    """The entries of a list with these ids, in the order of ``ids``. Unknown ids are dropped.

    ``bytes_max``: the most bytes that a page uses, unless its first entry alone is larger.
    """
    selected = [(text, number) for text, number in ((text, listed.number(text)) for text in ids) if number is not None]
    order = [text for text, _ in selected]

    def items(indexes: range) -> Iterator[bytes]:
        numbers = [selected[index][1] for index in indexes]
        return iter(_read_sorted(listed.item, numbers, bytes_max)) if listed.in_batches else map(listed.item, numbers)

    return listed._replace(
        total=len(selected), position=lambda text: order.index(text) if text in order else None, items=items
    )


def _read_sorted(item: Callable[[int], bytes], numbers: list[int], bytes_max: int) -> list[bytes]:
    """The items of the first ``numbers``, in the given order. They are read in ascending order of number.

    Drops items from the end while the read ones exceed ``bytes_max`` together; keeps at least one.
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
