"""Changes applied to sorted entries, against a dictionary; prefixes and the declarations that cover them."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.addresses import AccessList
from dovetail.ledger.listing import Entry, changes_under, overlaid

_names = st.text("ab", min_size=1, max_size=3)
_states = st.dictionaries(_names, st.binary(max_size=1))
_changes = st.dictionaries(_names, st.none() | st.binary(max_size=1))


@given(_states, _changes, st.text("ab", max_size=2))
def test_what_comes_out_is_the_changed_state_by_address(
    state: dict[str, bytes], changes: dict[str, bytes | None], prefix: str
) -> None:
    entries = iter(sorted(item for item in state.items() if item[0].startswith(prefix)))
    merged = {name: value for name, value in {**state, **changes}.items() if value is not None}
    expected = sorted(item for item in merged.items() if item[0].startswith(prefix))
    assert list(overlaid(entries, changes_under(changes, prefix))) == expected


def test_entries_are_taken_as_they_are_wanted() -> None:
    taken: list[str] = []

    def entries() -> Iterator[Entry]:
        for name in "acegi":
            taken.append(name)
            yield name, b""

    merged = overlaid(entries(), [("b", b""), ("c", None)])
    assert [next(merged)[0] for _ in range(2)] == ["a", "b"]
    assert taken == ["a", "c"]


@pytest.mark.parametrize(
    ("declared", "prefix", "covered"),
    [
        ([], "", False),
        ([""], "", True),
        (["ab"], "", False),
        (["ab"], "ab", True),
        (["ab"], "abcd", True),
        (["abcd"], "ab", False),
        (["ab" * 35], "ab" * 35, True),
        (["ab" * 35], "ab" * 34, False),
        (["00", "ab"], "ab" * 35, True),
        # Together these two cover all addresses under "ab", but neither does alone.
        (["ab0", "ab1"], "ab", False),
    ],
)
def test_a_prefix_is_covered_by_one_entry_that_it_begins_with(declared: list[str], prefix: str, covered: bool) -> None:
    assert AccessList(declared).permits_prefix(prefix) is covered
