"""Who may change settings, and which values leave the settings changeable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger import migration
from dovetail.ledger.electorate import Electorate, change_refusal, electorate_of, value_refusal
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.settings import APPROVAL_THRESHOLD, AUTHORIZED_KEYS, PROPOSALS, TRANSACTION_FAMILIES, value_digest
from dovetail.ledger.signing import Signer

A, B, C = (Signer(f"{number:064x}").public_key for number in (1, 2, 3))
NO_POINT = "02" + "00" * 32
THREE = Electorate((A, B, C), 2)


@pytest.mark.parametrize(
    ("keys", "threshold", "electorate"),
    [
        (None, None, ((), 1)),
        (A, None, ((A,), 1)),
        (f" {A} ,, {B}", "2", ((A, B), 2)),
        (f"{A},{A},{B}", "3", ((A, B), 2)),
        (f"{NO_POINT},{A},{B.upper()},alice", "999999999", ((A,), 1)),
    ],
)
def test_keys_that_can_sign_vote_and_the_threshold_is_at_most_their_number(
    keys: str | None, threshold: str | None, electorate: tuple[tuple[str, ...], int]
) -> None:
    assert electorate_of(keys, threshold) == electorate


@pytest.mark.parametrize(
    ("keys", "threshold", "said"),
    [
        ("", None, "names no key that can sign: ''"),
        (NO_POINT, "1", "names no key that can sign"),
        *(
            (A, threshold, "no number of votes")
            for threshold in ("", "0", "01", "-1", "1.0", "many", "1" * 10, "\u0663")
        ),
    ],
)
def test_values_that_make_no_electorate_are_refused(keys: str, threshold: str | None, said: str) -> None:
    with pytest.raises(NotDecodable, match=said):
        electorate_of(keys, threshold)


@given(st.text(max_size=80), st.text(max_size=12) | st.none())
def test_any_values_make_an_electorate_that_can_decide_or_none(keys: str, threshold: str | None) -> None:
    try:
        electorate = electorate_of(f"{A},{keys}", threshold)
    except NotDecodable:
        return
    assert 1 <= electorate.threshold <= len(electorate.keys)


@given(
    st.sampled_from([AUTHORIZED_KEYS, APPROVAL_THRESHOLD]), st.text(max_size=12) | st.permutations([A, B, C, NO_POINT])
)
def test_a_value_that_may_take_effect_leaves_an_electorate_with_the_same_threshold(
    setting: str, value: str | list[str]
) -> None:
    text = value if isinstance(value, str) else ",".join(value[:3])
    if value_refusal(setting, text, THREE) is None:
        stored = {AUTHORIZED_KEYS: ",".join(THREE.keys), APPROVAL_THRESHOLD: "2"} | {setting: text}
        after = electorate_of(stored[AUTHORIZED_KEYS], stored[APPROVAL_THRESHOLD])
        assert after.threshold == int(stored[APPROVAL_THRESHOLD])


def refusal(base: str, now: str | None, *, setting: str = "a.b", value: str = "2") -> str | None:
    return change_refusal(setting, value, THREE, base, {setting: now}.__getitem__)


def test_a_change_is_refused_if_the_value_is_not_the_one_it_was_made_against() -> None:
    assert refusal(value_digest("1"), "1") is None
    assert refusal("unset", None) is None
    assert refusal("", "1") is None
    for base, now in (
        ("unset", "1"),
        (value_digest("1"), None),
        (value_digest("1"), ""),
        ("1", "1"),
        ("x" * 10**6, None),
    ):
        said = refusal(base, now)
        assert said is not None
        assert f"against its value {base[:16]}, and the value is {value_digest(now)[:16]} now" in said
        assert len(said) < 300


def test_a_change_without_a_base_or_to_a_bad_value_reads_nothing() -> None:
    """A client of the 1.x line need not declare more addresses than the change needs."""

    def read(setting: str) -> str | None:
        raise AssertionError(setting)

    assert change_refusal("a.b", "2", THREE, "", read) is None
    assert "by proposals and votes only" in str(change_refusal(PROPOSALS, "", THREE, "unset", read))
    assert "could not enter block 0" in str(change_refusal(TRANSACTION_FAMILIES, "[]", THREE, "unset", read))


def test_the_key_of_migrations_changes_no_setting() -> None:
    """Everybody knows its private key, and no client may sign with it: as the only key, it would lock the settings."""
    alone = value_refusal(AUTHORIZED_KEYS, migration.PUBLIC_KEY, Electorate((), 1))
    assert alone is not None
    assert "the key of migrations" in alone
    assert electorate_of(f"{A},{migration.PUBLIC_KEY}", "2") == Electorate((A,), 1)


def test_the_first_keys_can_be_set_whatever_threshold_is_stored() -> None:
    assert electorate_of(None, "2") == Electorate((), 1)
    assert value_refusal(AUTHORIZED_KEYS, A, electorate_of(None, "2")) is None
