"""The bytes of a load: how transactions are packed, and which family, verb and name each has."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest

from dovetail.bench.families import family_of, names_of
from dovetail.bench.signed_load import Load, Post, sign_post
from dovetail.ledger.batch import VerifiedBatch, decode_batch_list, verify_batch
from dovetail.ledger.transaction import decode_transaction
from families.intkey.payload import ENCODINGS

_LOAD = Load(seed=7, mark="ab12cd34", kind="draw", names=3, transactions=11, shape=2, per_post=4)
_FAMILIES = Load(seed=7, mark="ab12cd34", kind="draw", names=30, transactions=600, shape=2, per_post=300, families=3)


class _Action(NamedTuple):
    family: str
    verb: str
    name: str


def _posts(load: Load) -> list[Post]:
    return [sign_post(load, number) for number in range(load.posts)]


def _batches(load: Load) -> list[VerifiedBatch]:
    return [verify_batch(raw) for post in _posts(load) for raw in decode_batch_list(post.body)]


def _actions(load: Load) -> Counter[_Action]:
    """How often each action occurs in a load."""
    items = [item for batch in _batches(load) for item in batch.transactions]
    payloads = [ENCODINGS["application/cbor"].decode(decode_transaction(item.raw).payload) for item in items]
    return Counter(
        _Action(item.family.name, payload.verb, payload.name) for item, payload in zip(items, payloads, strict=True)
    )


def _names(load: Load) -> set[tuple[str, str]]:
    return {(action.family, action.name) for action in _actions(load)}


def test_a_load_is_packed_to_its_last_transaction() -> None:
    posts = _posts(_LOAD)
    assert (_LOAD.batches, _LOAD.posts) == (6, 2)
    assert [post.transactions for post in posts] == [8, 3]
    for post in posts:
        assert tuple(verify_batch(raw).id for raw in decode_batch_list(post.body)) == post.batch_ids
    assert _actions(_LOAD).total() == 11


def test_every_name_is_set_once_before_it_is_drawn() -> None:
    prepared = _actions(replace(_LOAD, kind="prepare", transactions=3))
    assert {action.verb for action in prepared} == {"set"}
    assert (len(prepared), prepared.total()) == (3, 3)
    assert _names(_LOAD) <= {(action.family, action.name) for action in prepared}


def test_new_names_are_set_once_each_by_families_in_turn() -> None:
    actions = _actions(replace(_FAMILIES, kind="create", names=0, first_name=1000))
    assert set(actions.values()) == {1}
    assert {action.verb for action in actions} == {"set"}
    assert {action.name for action in actions} == {f"ab12cd34-{number:x}" for number in range(1000, 1600)}
    assert Counter(action.family for action in actions) == {"intkey": 200, "intkey_2": 200, "intkey_3": 200}


def test_conflicts_among_new_names_change_one_prepared_name_of_each_family() -> None:
    load = replace(_FAMILIES, kind="create", names=3, first_name=3, conflict_percent=50)
    actions = _actions(load)
    changed = {action: count for action, count in actions.items() if action.verb == "inc"}
    prepared = _names(replace(load, kind="prepare", first_name=0, transactions=3))
    assert {(action.family, action.name) for action in changed} == prepared
    assert all(80 <= count <= 140 for count in changed.values())
    assert not prepared & {(action.family, action.name) for action in actions if action.verb == "set"}


def test_equal_loads_are_equal_bytes_and_another_mark_is_all_new() -> None:
    assert sign_post(_LOAD, 1) == sign_post(replace(_LOAD), 1)
    other = sign_post(replace(_LOAD, mark="ffffffff"), 1)
    assert not set(other.batch_ids) & set(sign_post(_LOAD, 1).batch_ids)


@pytest.mark.parametrize(("names", "of"), [(1, 1), (3, 3), (5, 4), (100, 7), (10, 3)])
def test_names_are_shared_out_among_families(names: int, of: int) -> None:
    shares = [names_of(family, names, of) for family in range(of)]
    assert [name for share in shares for name in share] == list(range(names))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1 <= min(map(len, shares))
    assert all(family_of(name, names, of) == family for family, share in enumerate(shares) for name in share)


def test_families_take_turns_and_share_no_name() -> None:
    assert [{item.family.name for item in batch.transactions} for batch in _batches(_FAMILIES)][:4] == [
        {"intkey"}, {"intkey_2"}, {"intkey_3"}, {"intkey"},
    ]  # fmt: skip
    names = _names(_FAMILIES)
    assert Counter(family for family, _ in names) == {"intkey": 10, "intkey_2": 10, "intkey_3": 10}
    assert len({name for _, name in names}) == 30


def test_prepared_names_are_those_that_are_drawn() -> None:
    assert _names(replace(_FAMILIES, kind="prepare", transactions=30)) == _names(_FAMILIES)
    rest = _names(replace(_FAMILIES, kind="prepare", first_name=25, transactions=5))
    assert rest == {("intkey_3", f"ab12cd34-{number:x}") for number in range(25, 30)}


@pytest.mark.parametrize(("percent", "least", "most"), [(100, 200, 200), (50, 80, 140), (0, 0, 60)])
def test_a_part_of_the_load_goes_to_one_name_of_its_family(percent: int, least: int, most: int) -> None:
    actions = _actions(replace(_FAMILIES, conflict_percent=percent))
    for family, name in (("intkey", "0"), ("intkey_2", "a"), ("intkey_3", "14")):
        assert least <= actions[_Action(family, "inc", f"ab12cd34-{name}")] <= most
