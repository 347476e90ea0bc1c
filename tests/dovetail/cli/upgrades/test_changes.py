"""How plans, retirements and cancellations change the setting, without a node."""

from typing import Any

import pytest

from dovetail.cli.upgrades.changes import block_of, called_off, gap_of, lifted, planned, retired, value_of
from dovetail.common.errors import Refused
from dovetail.ledger.permitted import Permission, decode_permitted_families
from dovetail.ledger.settings import FamilyVersion

SETTINGS = Permission(FamilyVersion("sawtooth_settings", "1.0"))
V1, V2, V3, V4 = (FamilyVersion("intkey", version) for version in ("1.0", "2.0", "3.0", "4.0"))
BEFORE = (SETTINGS, Permission(V1))
MIGRATED = (SETTINGS, Permission(V1, 0, 19), Permission(V2, 20, None, ("1cf126",)))
MISREADING = (Permission(FamilyVersion("xo", "1")), Permission(FamilyVersion("xo", "2"), 9, None, ("5b7349",)))
SETTINGS_9 = FamilyVersion("sawtooth_settings", "9.9")
HEAD = 10


def plan(
    entries: tuple[Permission, ...] = BEFORE,
    old: FamilyVersion = V1,
    new: FamilyVersion = V2,
    *,
    at: int = 20,
    until: int | None = None,
    migrate: tuple[str, ...] = (),
) -> tuple[Permission, ...]:
    return planned(entries, old, new, from_block=at, until_block=until, migrate=migrate, head_num=HEAD)


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1200", 1200), ("+100", 110), ("+0", 10), (str(2**63 - 1), 2**63 - 1)]
)
def test_blocks_are_numbers_or_so_many_behind_the_head(text: str, number: int) -> None:
    assert block_of(text, "--at", HEAD) == number


@pytest.mark.parametrize("text", ["", "+", "-1", "x", "1.5", " 1", "1_0", "٣", str(2**63), "+" + str(2**63 - 1)])
def test_what_is_no_block_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"--until .* is no block: a number as 1200, or \+100"):
        block_of(text, "--until", HEAD)


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        ({}, (*BEFORE, Permission(V2, 20))),
        ({"at": 12}, (*BEFORE, Permission(V2, 12))),
        ({"until": 30}, (SETTINGS, Permission(V1, 0, 30), Permission(V2, 20))),
        ({"until": 19}, (SETTINGS, Permission(V1, 0, 19), Permission(V2, 20))),
        ({"migrate": ("1cf126",)}, (SETTINGS, Permission(V1, 0, 19), Permission(V2, 20, None, ("1cf126",)))),
        # An earlier end of the old version is not extended. An entry of the old version that would begin later is
        # dropped.
        (
            {"entries": (SETTINGS, Permission(V1, 0, 15), Permission(V1, 18, 40), Permission(V1, 50)), "until": 30},
            (SETTINGS, Permission(V1, 0, 15), Permission(V1, 18, 30), Permission(V2, 20)),
        ),
        # Past entries stay as they are.
        (
            {"entries": (SETTINGS, Permission(V1, 0, 5), Permission(V1, 8), Permission(V2, 0, 9)), "until": 30},
            (SETTINGS, Permission(V1, 0, 5), Permission(V1, 8, 30), Permission(V2, 0, 9), Permission(V2, 20)),
        ),
        # A version after a migration reads the migrated state; other families are not this plan's concern.
        (
            {"entries": (*MIGRATED, Permission(V3, 30)), "old": V2, "new": V4, "at": 40},
            (*MIGRATED, Permission(V3, 30), Permission(V4, 40)),
        ),
        ({"entries": (*BEFORE, *MISREADING)}, (*BEFORE, *MISREADING, Permission(V2, 20))),
    ],
)
def test_a_plan_adds_the_new_version_and_ends_the_old(words: dict[str, Any], entries: tuple[Permission, ...]) -> None:
    assert plan(**words) == entries


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"new": V1}, "both the old and the new"),
        ({"at": 11}, r"block 11 is too early, the head is block 10 .* --at \+2"),
        ({"at": 3}, "block 3 is too early"),
        ({"old": V3}, "intkey 3.0 is not permitted, .* names: intkey 1.0"),
        ({"entries": (Permission(V1, 0, 10),)}, "intkey 1.0 is not permitted"),
        ({"entries": (*BEFORE, Permission(V2, 15))}, "intkey 2.0 from block 15 is .*planned already.*upgrade cancel"),
        ({"entries": (*BEFORE, Permission(V2))}, "intkey 2.0 is permitted"),
        ({"until": 18}, "blocks 19 to 19 would take neither version of intkey; say --until 19"),
        ({"until": 20, "migrate": ("1cf126",)}, "cannot go on to block 20, .* ends with block 19"),
        ({"migrate": ("1cf12",)}, "'1cf12' is no prefix"),
        ({"migrate": ("1cf1",)}, "'1cf1' is no prefix"),
        ({"migrate": tuple(f"{n:06x}" for n in range(17))}, "17 prefixes, at most 16"),
        ({"migrate": ("1cf126", "000000a1")}, "would migrate 000000a1, where the ledger's own settings are"),
        (
            {"old": SETTINGS.family, "new": SETTINGS_9, "until": 19},
            "could not enter block 20: no setting.* name sawtooth_settings 1.0 without",
        ),
        (
            {"entries": (*BEFORE, Permission(V3)), "migrate": ("1cf126",)},
            "intkey 3.0 would go on .*retire intkey 3.0 --until 19",
        ),
    ],
)
def test_plans_that_make_no_sense_are_refused_with_what_to_do(words: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        plan(**words)


def test_a_retirement_ends_a_version_earlier_or_later() -> None:
    entries = (SETTINGS, Permission(V1, 0, 5), Permission(V1, 8, 40), Permission(V2, 20))
    for until in (10 + 1, 40, 99):
        assert retired(entries, V1, until_block=until, head_num=HEAD) == (
            SETTINGS, Permission(V1, 0, 5), Permission(V1, 8, until), Permission(V2, 20),
        )  # fmt: skip
    assert retired(BEFORE, V1, until_block=11, head_num=HEAD) == (SETTINGS, Permission(V1, 0, 11))


@pytest.mark.parametrize(
    ("entries", "gap"),
    [
        (BEFORE, None),
        ((SETTINGS,), (11, None)),
        ((Permission(V1, 0, 11),), (12, None)),
        ((Permission(V1, 0, 40), Permission(V2, 100)), (41, 99)),
        ((Permission(V2, 41), Permission(V1, 0, 40)), None),
        ((Permission(V1, 0, 60), Permission(V3, 3, 9), Permission(V2, 41)), None),
        ((Permission(V2, 11), Permission(V1, 0, 9)), None),
    ],
)
def test_blocks_that_take_no_version_of_a_family(
    entries: tuple[Permission, ...], gap: tuple[int, int | None] | None
) -> None:
    assert gap_of(entries, "intkey", HEAD) == gap


@pytest.mark.parametrize(
    ("entries", "family", "until", "said"),
    [
        (BEFORE, V2, 20, "intkey 2.0 is not permitted"),
        (BEFORE, V1, 10, r"block 10 is past, the head is block 10; say --until \+1"),
        (BEFORE, SETTINGS.family, 20, "could not enter block 21: no setting.* name sawtooth_settings 1.0 without"),
        ((*BEFORE, Permission(SETTINGS_9, 10**15)), SETTINGS.family, 12, "could not enter block 13: no setting"),
        (MIGRATED, V1, 20, "rewrites, from block 20 on"),
    ],
)
def test_retirements_that_make_no_sense_are_refused(
    entries: tuple[Permission, ...], family: FamilyVersion, until: int, said: str
) -> None:
    with pytest.raises(Refused, match=said):
        retired(entries, family, until_block=until, head_num=HEAD)


@pytest.mark.parametrize("words", [{}, {"until": 19}, {"migrate": ("1cf126",)}, {"at": 12}, {"at": 12, "until": 11}])
def test_what_is_called_off_leaves_what_was_before_its_plan(words: dict[str, Any]) -> None:
    assert called_off(plan(**words), V2, head_num=HEAD) == BEFORE


def test_ends_that_a_plan_did_not_set_stay_when_it_is_called_off() -> None:
    """A retirement stays, whatever is planned and cancelled later."""
    ended = retired((*BEFORE, Permission(V2, 5)), V1, until_block=500, head_num=HEAD)
    assert called_off(plan(ended, V2, V3), V3, head_num=HEAD) == ended
    both = plan(plan(until=25), V2, V3, at=23)
    assert called_off(both, V3, head_num=HEAD) == plan(until=25)
    assert called_off(plan(until=50), V2, head_num=HEAD) == (SETTINGS, Permission(V1, 0, 50))


def test_every_end_that_is_lifted_is_named() -> None:
    before = (SETTINGS, Permission(V1, 0, 19), Permission(V2, 20), Permission(V3, 0, 3), Permission(V3, 8, 19))
    after = called_off(before, V2, head_num=HEAD)
    assert after == (SETTINGS, Permission(V1), Permission(V3, 0, 3), Permission(V3, 8))
    assert [lifted(before, after, family) for family in (V1, V2, V3)] == [[19], [], [19]]


def test_a_migration_that_is_not_made_is_called_off_after_its_block_too() -> None:
    """If nothing was migrated, the former version continues as if nothing had been planned."""
    late = plan(migrate=("1cf126",), at=12)
    with pytest.raises(Refused, match=r"permitted since block 12: .* its migration has rewritten"):
        called_off(late, V2, head_num=15)
    assert called_off(late, V2, head_num=15, unmigrated={(V2, 12)}) == BEFORE
    with pytest.raises(Refused, match="it may be in use"):
        called_off((*BEFORE, Permission(V2, 9)), V2, head_num=15, unmigrated={(V2, 9)})


def test_what_is_called_off_leaves_no_version_where_another_one_rewrites() -> None:
    """Cancelling 2.0 is refused while 3.0 migrates. If 3.0 is cancelled first, cancelling 2.0 lifts the end of 1.0."""
    both = plan(plan(until=19), V2, V3, at=40, migrate=("1cf126",))
    with pytest.raises(
        Refused, match=r"without intkey 2.0 nothing ends .* from block 40 on.*upgrade cancel intkey 3.0"
    ):
        called_off(both, V2, head_num=HEAD)
    assert called_off(called_off(both, V3, head_num=HEAD), V2, head_num=HEAD) == BEFORE


def test_only_the_coming_span_of_a_version_is_called_off() -> None:
    """Entries in force keep their ends. Of two migrations, only the one that no block holds is cancelled."""
    spans = (*BEFORE, Permission(V2, 5, 49), Permission(V2, 50, 90), Permission(V2, 100))
    assert called_off(spans, V2, head_num=60) == spans[:-1]
    assert called_off((*BEFORE, spans[2], spans[4]), V2, head_num=HEAD) == (*BEFORE, spans[2])
    assert called_off(spans[:4], V2, head_num=HEAD) == spans[:3]
    made = (SETTINGS, Permission(V2, 5, None, ("1cf126",)), Permission(V2, 8, None, ("1cf127",)))
    assert called_off(made, V2, head_num=HEAD, unmigrated={(V2, 8)}) == made[:-1]


@pytest.mark.parametrize("migrate", [(), ("1cf126",)])
def test_a_migration_that_a_later_plan_builds_on_is_not_called_off(migrate: tuple[str, ...]) -> None:
    """If the migration of 2.0 were cancelled, 3.0 would read the state of 1.0."""
    both = plan(plan(migrate=("1cf126",)), V2, V3, at=40, until=39, migrate=migrate)
    said = "intkey 3.0 comes from block 40 on, on top of what intkey 2.0 migrates from block 20 on; .*cancel intkey 3.0"
    with pytest.raises(Refused, match=said):
        called_off(both, V2, head_num=HEAD)
    late = {(V2, 20), (V3, 40)} if migrate else {(V2, 20)}
    with pytest.raises(Refused, match=said):
        called_off(both, V2, head_num=30, unmigrated=late)
    assert called_off(called_off(both, V3, head_num=HEAD), V2, head_num=HEAD) == BEFORE


def test_what_has_come_does_not_keep_a_migration_that_is_not_made() -> None:
    """Version 3.0 is in force and cannot be cancelled. The migration of 2.0, which is in no block, can be cancelled."""
    both = (SETTINGS, Permission(V1, 0, 19), Permission(V2, 20, None, ("1cf126",)), Permission(V3, 40))
    assert called_off(both, V2, head_num=50, unmigrated={(V2, 20)}) == (*BEFORE, Permission(V3, 40))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((*BEFORE, Permission(V2, 20, None, ("1cf126", "1cf12600"))), "names what lies under 1cf126 twice"),
        (tuple(Permission(FamilyVersion("f", str(n))) for n in range(1001)), "1001 entries, at most 1000"),
        (BEFORE[::-1], None),
    ],
)
def test_what_no_node_would_understand_is_not_proposed(entries: tuple[Permission, ...], said: str | None) -> None:
    if said is None:
        assert decode_permitted_families(value_of(entries)) == entries
        return
    with pytest.raises(Refused, match=f"no node would understand this.*{said}"):
        value_of(entries)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (BEFORE, "intkey 2.0 is not planned"),
        ((*BEFORE, Permission(V2, 0, 9)), "intkey 2.0 is not planned"),
        ((*BEFORE, Permission(V2, 11)), "permitted from the next block on: .*retire intkey 2.0 --until"),
        ((*BEFORE, Permission(V2, 9)), "permitted since block 9"),
        ((Permission(V2, 9, None, ("1cf126",)),), "its migration has rewritten what older versions read"),
    ],
)
def test_what_is_in_force_is_not_called_off(entries: tuple[Permission, ...], said: str) -> None:
    with pytest.raises(Refused, match=said):
        called_off(entries, V2, head_num=HEAD)
