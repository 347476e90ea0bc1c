"""How each family's readiness reports stalls and unfinished work, without a node."""

import re
from typing import Any

import pytest

from dovetail.cli.upgrades.readiness import in_progress, readiness, stalls

HEAD = 10


def family(**members: Any) -> dict[str, Any]:
    return {
        "family_name": "intkey", "family_version": "2.0", "permission": "permitted", "migrates": [],
        "migration": "none", "processors": 1, "migrating_processors": 0, "pending": {}, **members,
    }  # fmt: skip


WAITING = {"permission": "waiting", "from_block": 12}


@pytest.mark.parametrize(
    ("members", "stalled", "said"),
    [
        ({}, False, "served"),
        ({"until_block": 30}, False, "ends with block 30"),
        ({"permission": "ended", "until_block": 3, "processors": 0}, False, "has ended"),
        ({"permission": "not_permitted", "pending": {"queued": 2}}, False, "2 batches will be INVALID"),
        ({"processors": 0}, True, "batches would wait: no processor serves it; start one of intkey 2.0"),
        ({"processors": 0, "pending": {"waiting_for_processor": 3}}, True, "3 batches waiting: no processor serves it"),
        (WAITING, False, "ready from block 12, in 2 blocks"),
        ({**WAITING, "pending": {"waiting_for_activation": 1}}, False, "1 batch waiting for it"),
        ({**WAITING, "processors": 0, "pending": {"queued": 1}}, True, "1 batch would wait: no processor serves it"),
        ({**WAITING, "migration": "due", "processors": 0}, True, "no processor serves and migrates it"),
        ({**WAITING, "migration": "due"}, True, "start one that has migrate"),
        (
            {**WAITING, "migration": "due", "migrating_processors": 1},
            False,
            "ready from block 12, .* after its migration",
        ),
        ({"migration": "due", "migrating_processors": 1}, False, "under way"),
        ({"migration": "refused", "migration_message": "too much"}, True, "its migration was refused: too much"),
        (
            {"migration": "refused", "migration_message": "too much", "builds": {"winter": 2, "": 1, "fall": 1}},
            True,
            r"was refused \(connected: fall, winter\): too much; .* or call the plan off: dovetail upgrade cancel",
        ),
        ({**WAITING, "migrating_processors": 1}, True, "would come without its migration"),
        ({**WAITING, "migrating_processors": 1, "migration": "done"}, False, "ready"),
        ({"migrating_processors": 1}, False, "served"),
        ({"migration": "done"}, False, "served"),
    ],
)
def test_what_would_happen_if_the_block_came_now(members: dict[str, Any], stalled: bool, said: str) -> None:
    found = readiness(family(**members), HEAD, restricted=True)
    assert found.stalls is stalled
    assert re.search(said, found.text), found.text
    assert bool(stalls([family(**members)], HEAD, restricted=True)) is stalled


def test_without_the_setting_only_what_waits_stalls() -> None:
    assert not readiness(family(processors=0), HEAD, restricted=False).stalls
    assert readiness(family(processors=0, pending={"waiting_for_processor": 1}), HEAD, restricted=False).stalls


def test_a_migration_whose_block_has_come_is_not_done() -> None:
    due = {"migration": "due", "migrates": ["1cf126"], "migrating_processors": 1}
    assert in_progress([family(**due)], HEAD, restricted=True) == ["intkey 2.0: its migration is under way"]
    for members in ({**due, **WAITING}, {**due, "migration": "done"}, {**due, "migration": "refused"}, {}):
        assert in_progress([family(**members)], HEAD, restricted=True) == []


def test_a_name_cannot_make_a_line_of_its_own() -> None:
    (line,) = stalls([family(family_name="in\ntkey\x1b", processors=0)], HEAD, restricted=True)
    assert line.startswith(r"in\ntkey\x1b 2.0: batches would wait")
    assert line.isprintable()
