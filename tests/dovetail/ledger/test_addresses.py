"""Addresses, prefixes and access lists."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.addresses import AccessList, is_address, is_prefix, namespace_of


def test_addresses_and_prefixes() -> None:
    full = "1cf126" + "0" * 64
    assert is_address(full)
    assert is_prefix(full)
    for length in range(0, 71, 2):
        assert is_prefix(full[:length])
    for length in range(1, 71, 2):
        assert not is_prefix(full[:length])
    for bad in (full[:-1], full + "0", full + "00", full.upper(), full[:-1] + "\n", full + "\n", "g" * 70):
        assert not is_address(bad)
        assert not is_prefix(bad)
    assert namespace_of("intkey") == "1cf126"


# A small alphabet, so that entries and addresses often match.
_address = st.text("0a", min_size=6, max_size=6).map(lambda text: text.ljust(70, "0"))


_entry = st.one_of(_address, st.builds(lambda address, pairs: address[: 2 * pairs], _address, st.integers(0, 35)))


@given(st.lists(_entry, max_size=6), _address)
def test_an_access_list_permits_what_an_entry_begins(declared: list[str], address: str) -> None:
    access = AccessList(declared)
    assert access.permits(address) == any(address.startswith(entry) for entry in declared)
    assert access.declared == tuple(declared)
    assert {entry for entry in access.entries if len(entry) == 70} == {entry for entry in declared if len(entry) == 70}


def test_an_access_list_takes_any_iterable_once() -> None:
    access = AccessList(entry for entry in ("00", "ab"))
    assert access.permits("ab".ljust(70, "0"))
    assert not AccessList(()).permits("0" * 70)
