"""The setting of permitted families: encoding and malformed values."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger import settings
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.permitted import (
    Permission,
    decode_permitted_families,
    encode_permitted_families,
    locks,
    permission_for,
    permitted_by,
)
from dovetail.ledger.settings import SETTINGS, FamilyVersion


def test_permitted_families() -> None:
    value = json.dumps([{"family": "intkey", "version": "1.0", "other": 3}, {"family": "", "version": ""}])
    assert decode_permitted_families(value) == (
        Permission(FamilyVersion("intkey", "1.0")),
        Permission(FamilyVersion("", "")),
    )
    assert decode_permitted_families(" [ ] ") == ()
    # Two halves of a surrogate pair form one character.
    value = r'[{"family": "\ud83d\ude00", "version": "1"}]'
    assert decode_permitted_families(value) == (Permission(FamilyVersion("\U0001f600", "1")),)
    brackets = json.dumps([{"family": '[{"\\' * 50, "version": "1"}])
    assert len(decode_permitted_families(brackets)) == 1


MALFORMED: list[dict[str, object]] = [
    {"from_block": -1}, {"from_block": 2**63}, {"from_block": "7"}, {"from_block": 1.0}, {"from_block": True},
    {"from_block": None}, {"until_block": 1.5}, {"until_block": -1}, {"from_block": 5, "until_block": 4},
    {"migrate": "1cf126"}, {"migrate": None}, {"migrate": [1]}, {"migrate": ["1cf1"]}, {"migrate": [""]},
    {"migrate": ["1cf12"]}, {"migrate": ["1CF126"]}, {"migrate": ["1cf126" + "00" * 33]},
    {"migrate": ["1cf126", "1cf126"]}, {"migrate": ["1cf12600", "1cf126"]},
    {"migrate": [f"{number:06x}" for number in range(17)]},
]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "",
        "intkey",
        "{}",
        "null",
        "3",
        '"[]"',
        "[",
        "[1]",
        "[null]",
        "[[]]",
        "[{}]",
        '[{"family": "intkey"}]',
        '[{"family": "intkey", "version": 1}]',
        '[{"family": ["intkey"], "version": "1.0"}]',
        '[{"family": null, "version": "1.0"}]',
        "[" + "9" * 5_000 + "]",
        "[NaN]",
        "\ufeff[]",
        '[{"family": "\\ud800", "version": "1.0"}]',
        '[{"family": "f", "version": "\\udfff\\ud800"}]',
        *(json.dumps([{"family": "f", "version": "1", **members}]) for members in MALFORMED),
    ],
    ids=lambda value: value[:30],
)
def test_permitted_families_that_cannot_be_understood(value: str) -> None:
    with pytest.raises(NotDecodable, match=settings.TRANSACTION_FAMILIES):
        decode_permitted_families(value)


@pytest.mark.parametrize(("entries", "migrating"), [(1_000, 0), (1_000, 100)])
def test_as_many_entries_as_may_be(entries: int, migrating: int) -> None:
    plan = [
        {"family": f"f{number}", "version": "1", "migrate": ["abcdef"] if number < migrating else []}
        for number in range(entries)
    ]
    assert len(decode_permitted_families(json.dumps(plan))) == entries
    more = {"family": "f", "version": "1", "migrate": ["abcdef"] if migrating else []}
    with pytest.raises(NotDecodable, match="at most"):
        decode_permitted_families(json.dumps([*(plan[:-1] if migrating else plan), more]))


PERMISSIONS = st.builds(
    lambda family, first, length, migrate: Permission(
        family, first, None if length is None else first + length, tuple(sorted(migrate))
    ),
    st.builds(FamilyVersion, st.text(max_size=5), st.text(max_size=5)),
    st.integers(0, 2**62),
    st.none() | st.integers(0, 2**62),
    st.sets(st.integers(0, 2**24 - 1).map("{:06x}".format), max_size=16),
)


@given(st.lists(PERMISSIONS, max_size=5))
def test_permitted_families_as_text_and_back(permitted: list[Permission]) -> None:
    assert decode_permitted_families(encode_permitted_families(permitted)) == tuple(permitted)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_permitted_families_in_deep_nesting(opening: str) -> None:
    for depth in (*range(10, 1_010, 10), 100_000):
        with pytest.raises(NotDecodable):
            decode_permitted_families("[" + opening * depth + "1" + ("]" if opening == "[" else "}") * depth + "]")


@given(st.text(max_size=40))
def test_any_text_as_permitted_families(value: str) -> None:
    with contextlib.suppress(NotDecodable):
        assert isinstance(decode_permitted_families(value), tuple)


@given(st.lists(PERMISSIONS | PERMISSIONS.map(lambda entry: entry._replace(family=SETTINGS)), max_size=4), st.data())
def test_every_value_permits_the_settings_in_every_block(permitted: list[Permission], data: st.DataObject) -> None:
    """The other entries stay as they are, and a value that may be proposed is read as it is."""
    edges = {0, *(entry.from_block for entry in permitted), *(entry.until_block or 0 for entry in permitted)}
    block_num = max(0, data.draw(st.sampled_from(sorted(edges))) + data.draw(st.sampled_from([-1, 0, 1])))
    read = permitted_by(encode_permitted_families(permitted))
    found = permission_for(SETTINGS, read, block_num)
    assert found is not None
    assert found.covers(block_num)
    assert not any(entry.migrate for entry in read if entry.family == SETTINGS)
    others = [entry for entry in read if entry.family != SETTINGS]
    assert others == [entry for entry in permitted if entry.family != SETTINGS]
    if locks(permitted) is None:
        assert read == tuple(permitted)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((Permission(SETTINGS),), None),
        ((Permission(SETTINGS, 13), Permission(SETTINGS, 0, 12)), None),
        ((), "block 0"),
        ((Permission(FamilyVersion("sawtooth_settings", "9.9")),), "block 0"),
        ((Permission(SETTINGS, 1),), "block 0"),
        ((Permission(SETTINGS, 0, 99),), "block 100"),
        ((Permission(SETTINGS, 0, 5), Permission(SETTINGS, 7)), "block 6"),
        ((Permission(SETTINGS), Permission(SETTINGS, 7, None, ("1cf126",))), "before its migration"),
        (
            (Permission(SETTINGS), Permission(FamilyVersion("f", "1"), 7, None, ("0000001c",))),
            "f 1 would migrate 0000001c",
        ),
    ],
)
def test_a_value_that_locks_the_settings_is_told(entries: tuple[Permission, ...], said: str | None) -> None:
    found = locks(entries)
    assert found is None if said is None else said in str(found)
