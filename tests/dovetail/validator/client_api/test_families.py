"""Reported families, and warnings of stalled upgrades. The number of both is bounded."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dovetail.ledger.ids import BatchId
from dovetail.ledger.permitted import Permission, Permitted, encode_permitted_families, permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.client_api import families
from dovetail.validator.client_api.families import Families
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from dovetail.validator.store import Store
from protos.node_pb2 import FamiliesResponse, FamilyStatus
from tests.dovetail.validator.processors_support import Bench
from tests.dovetail.validator.support import LIMITS, commit, make_batch, make_transaction, open_store, permitting

V1 = FamilyVersion("intkey", "1.0")
V2 = FamilyVersion("intkey", "2.0")
SETTINGS = FamilyVersion("sawtooth_settings", "1.0")
MIGRATES = Permission(V2, from_block=9, migrate=("1cf126",))


class Node:
    """Families of a real store, queue and registry; the test sets the state of migrations."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queue = PendingQueue(LIMITS)
        self.bench = Bench()
        self.migrations: dict[FamilyVersion, tuple[str, str]] = {}
        self.asked: list[Permission] = []
        self.families = Families(store, self.queue, self.bench.processors, self._migration_of)
        # No upgrade is planned yet. Skip the ticks in which nothing is logged.
        for _ in range(families._GRACE_TICKS):
            self.families.tick()

    def _migration_of(self, permission: Permission) -> tuple[str, str]:
        self.asked.append(permission)
        return self.migrations.get(permission.family, ("DUE", ""))

    def permit(self, *entries: Permission) -> None:
        """Commit this value of the setting in the next block. The settings family is served but not listed."""
        self.bench.register(b"settings", family=SETTINGS)
        if not any(entry.family == SETTINGS for entry in entries):
            entries = (*entries, Permission(SETTINGS))
        value = encode_permitted_families(entries)
        commit(self.store, [make_batch(("permit", value, self.store.head))], permitting(value))

    def pend(self, name: object, *named: FamilyVersion) -> BatchId:
        batch = make_batch(name, *(make_transaction((name, family), family=family) for family in named))
        self.queue.add(len(self.queue), batch)
        return batch.id

    def told(self) -> dict[FamilyVersion, FamilyStatus]:
        """The reported families without the settings family, which is always listed."""
        response = self.families.status()
        told = {FamilyVersion(entry.family_name, entry.family_version): entry for entry in response.families}
        told.pop(SETTINGS, None)
        return told

    def warnings(self) -> Mapping[FamilyVersion, str]:
        return {unready.family: unready.warning for unready in self.families.unready()}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    store = open_store(tmp_path)
    try:
        yield Node(store)
    finally:
        store.close()


def test_without_a_chain_nothing_is_ready(node: Node) -> None:
    node.bench.register(family=V1)
    response = node.families.status()
    assert (response.status, response.head_id, response.restricted) == (FamiliesResponse().status + 2, "", False)
    assert [entry.family_name for entry in response.families] == ["intkey"]
    assert node.warnings() == {}


def test_without_the_setting_everything_is_permitted_and_nothing_is_warned_of(node: Node) -> None:
    head = commit(node.store, [make_batch("genesis")])
    node.bench.register(family=V1)
    node.pend("one", V2, V1)
    node.pend("two", V2)
    response = node.families.status()
    assert (response.status, response.head_id, response.head_num, response.restricted) == (1, head.id, 0, False)
    told = node.told()
    assert list(told) == [V1, V2]
    assert all(entry.permission == FamilyStatus.PERMITTED for entry in told.values())
    assert not any(entry.HasField("from_block") or entry.HasField("until_block") for entry in told.values())
    assert (told[V1].processors, told[V2].processors) == (1, 0)
    assert [(entry.reason, entry.batches) for entry in told[V2].pending] == [("queued", 2)]
    assert [(entry.reason, entry.batches) for entry in told[V1].pending] == [("queued", 1)]
    assert node.warnings() == {}


@pytest.mark.parametrize(
    ("entries", "permission", "window"),
    [
        ([Permission(V2)], FamilyStatus.PERMITTED, (None, None)),
        # The setting is in block 1, so the report is for block 2.
        ([Permission(V2, 2, 2)], FamilyStatus.PERMITTED, (2, 2)),
        ([Permission(V2, 3)], FamilyStatus.WAITING, (3, None)),
        ([Permission(V2, 3, 9), Permission(V2, 0, 1)], FamilyStatus.WAITING, (3, 9)),
        ([Permission(V2, 0, 0), Permission(V2, 1, 1)], FamilyStatus.ENDED, (1, 1)),
        ([Permission(V1)], FamilyStatus.NOT_PERMITTED, (None, None)),
    ],
)
def test_permission_is_for_the_next_block(
    node: Node, entries: list[Permission], permission: int, window: tuple[int | None, int | None]
) -> None:
    commit(node.store, [make_batch("genesis")])
    node.permit(*entries)
    node.bench.register(family=V2)
    told = node.told()[V2]
    found = tuple(getattr(told, name) if told.HasField(name) else None for name in ("from_block", "until_block"))
    assert (told.permission, found) == (permission, window)


def test_a_block_that_comes_changes_what_is_told(node: Node) -> None:
    commit(node.store, [make_batch("genesis")])
    node.permit(Permission(V1, until_block=2), Permission(V2, 3))
    assert [entry.permission for entry in node.told().values()] == [FamilyStatus.PERMITTED, FamilyStatus.WAITING]
    commit(node.store, [make_batch("another")])
    assert [entry.permission for entry in node.told().values()] == [FamilyStatus.ENDED, FamilyStatus.PERMITTED]


def test_a_version_that_nobody_serves_is_warned_of_from_the_moment_its_plan_is_on_the_chain(node: Node) -> None:
    commit(node.store, [make_batch("genesis")])
    node.bench.register(family=V1)
    assert node.warnings() == {}
    node.permit(Permission(V1), Permission(V2, 100))
    assert list(node.warnings()) == [V2]
    assert "intkey 2.0 is permitted from block 100 on, and no processor" in node.warnings()[V2]
    node.bench.register(b"q", family=V2)
    assert node.warnings() == {}
    node.permit(Permission(V1), Permission(V2, 0, 1))
    node.bench.gone.add(b"q")
    node.bench.processors.probe()
    assert node.warnings() == {}, "what has ended stalls nobody"
    head = node.store.head
    assert head is not None
    node.permit(Permission(V1), Permission(V2, 0, head.num + 1))
    assert node.warnings() == {}, "it ended with the newest block"
    node.permit(Permission(V1), Permission(V2, 0, head.num + 3))
    assert list(node.warnings()) == [V2], "the next block is its last"


def test_a_migration_that_nobody_can_do_is_warned_of_until_it_is_done(node: Node) -> None:
    commit(node.store, [make_batch("genesis")])
    node.permit(MIGRATES)
    node.bench.register(family=V2)
    assert "migrates 1cf126 first, which none of its 1 processors here does" in node.warnings()[V2]
    told = node.told()[V2]
    assert (told.migration, list(told.migrates), told.migrating_processors) == (FamilyStatus.DUE, ["1cf126"], 0)
    node.bench.register(b"q", family=V2, migrates=True)
    assert node.warnings() == {}
    assert (node.told()[V2].processors, node.told()[V2].migrating_processors) == (2, 1)
    node.migrations[V2] = ("REFUSED", "too much of it" * 1000)
    assert "was refused, its batches wait: too much of it" in node.warnings()[V2]
    assert len(node.warnings()[V2]) < 1000
    assert len(node.told()[V2].migration_message) == 500
    assert node.told()[V2].migration_message.startswith("too much of it")
    node.migrations[V2] = ("DONE", "")
    assert node.warnings() == {}
    asked = len(node.asked)
    assert node.told()[V2].migration == FamilyStatus.DONE
    assert len(node.asked) == asked, "what is done stays done"


def test_a_plan_that_leaves_out_the_migration_of_its_processors_is_warned_of_before_its_block(node: Node) -> None:
    commit(node.store, [make_batch("genesis")])
    node.bench.register(family=V2, migrates=True)
    node.permit(Permission(V2, 4))
    assert "without a migration, though 1 of its 1 processors here migrate" in node.warnings()[V2]
    assert node.told()[V2].migrating_processors == 1
    node.permit(Permission(V2, 4))
    assert list(node.warnings()) == [V2]
    node.permit(Permission(V2, 4))
    assert node.warnings() == {}, "its block is next, or has come: it serves what there is"
    node.permit(Permission(V2, 9, migrate=("1cf126",)))
    assert node.warnings() == {}
    node.permit(Permission(V2, 9))
    node.bench.unregister()
    node.bench.register(b"q", family=V2)
    assert node.warnings() == {}


@pytest.mark.parametrize(
    "entry", [Permission(SETTINGS, 0, 1), Permission(SETTINGS, 9), Permission(SETTINGS, 0, None, ("1cf126",))]
)
def test_settings_are_permitted_whatever_the_setting_says(node: Node, entry: Permission) -> None:
    commit(node.store, [make_batch("genesis")])
    node.permit(entry)
    (told,) = node.families.status().families
    assert (told.permission, told.migration) == (FamilyStatus.PERMITTED, FamilyStatus.NONE)
    assert not told.HasField("from_block")
    assert not told.HasField("until_block")
    assert node.warnings() == {}


def test_whoever_asks_often_has_the_queue_walked_a_few_times_between_two_ticks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(node.store, [make_batch("genesis")])
    node.pend("one", V1)
    walks: list[None] = []
    walk = PendingQueue.__iter__

    def counted(queue: PendingQueue) -> Iterator[Pending]:
        walks.append(None)
        return walk(queue)

    monkeypatch.setattr(PendingQueue, "__iter__", counted)
    for _ in range(100):
        assert node.told()[V1].pending[0].batches == 1
    assert len(walks) == families.WALKS_MAX
    node.pend("two", V1)
    node.bench.register(family=V2)
    told = node.told()
    assert (told[V1].pending[0].batches, told[V2].processors) == (1, 1), "only counts of batches may be old"
    node.families.tick()
    assert node.told()[V1].pending[0].batches == 2


def test_nothing_is_logged_before_the_processors_of_a_node_that_starts_again_are_back(node: Node) -> None:
    commit(node.store, [make_batch("genesis")])
    node.permit(Permission(V1))
    started = Families(node.store, node.queue, node.bench.processors, lambda _: ("NONE", ""))
    with capture_logs() as logged:
        for _ in range(families._GRACE_TICKS + 1):
            started.tick()
        assert logged == []
        started.tick()
    assert [line["family"] for line in logged] == ["intkey 1.0"]


def test_what_is_unready_is_logged_once_when_it_lasts_and_once_when_it_is_gone(node: Node) -> None:
    commit(node.store, [make_batch("genesis")])
    node.permit(Permission(V1), Permission(V2, 100))
    node.bench.register(family=V1)
    with capture_logs() as logged:
        for _ in range(4):
            node.families.tick()
    assert [(line["log_level"], line["family"]) for line in logged] == [("warning", "intkey 2.0")]
    node.bench.register(b"q", family=V2)
    with capture_logs() as logged:
        for _ in range(4):
            node.families.tick()
    assert [(line["log_level"], line["family"]) for line in logged] == [("info", "intkey 2.0")]
    with capture_logs() as logged:
        node.bench.gone.add(b"q")
        node.bench.processors.probe()
        node.families.tick()
        node.bench.gone.clear()
        node.bench.register(b"q", family=V2)
        node.families.tick()
    assert logged == [], "a processor that connects again is no trouble"


def test_a_setting_that_cannot_be_understood_permits_the_settings_family_alone(node: Node) -> None:
    commit(node.store, [make_batch("genesis")], permitting("nonsense"))
    node.bench.register(family=V1)
    assert [(entry.family_name, entry.permission) for entry in node.families.status().families] == [
        ("intkey", FamilyStatus.NOT_PERMITTED),
        (SETTINGS.name, FamilyStatus.PERMITTED),
    ]


def test_hostile_names_are_bounded_and_take_no_place_of_what_is_permitted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "FAMILIES_SHOWN_MAX", 11)
    monkeypatch.setattr(families, "WARNINGS_MAX", 3)
    commit(node.store, [make_batch("genesis")])
    many = [FamilyVersion("setting", str(number)) for number in range(5)]
    node.permit(*map(Permission, [FamilyVersion("x" * 257, "1"), *many]))
    node.bench.register(family=V1)
    for number in range(100):
        node.pend(number, FamilyVersion("stranger", str(number)), many[0])
    told = node.told()
    assert len(told) == 10
    assert {*many, V1} < set(told)
    assert told[many[0]].pending[0].batches == 100
    assert list(node.warnings()) == many[:3], "what is too long to be served is nothing to wait for"


def test_the_setting_is_decoded_when_its_leaf_changes_only(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Permitted] = []

    def decode(read: Callable[[str], bytes | None]) -> Permitted:
        decoded.append(permitted_families(read))
        return decoded[-1]

    monkeypatch.setattr(families, "permitted_families", decode)
    commit(node.store, [make_batch("genesis")])
    node.permit(Permission(V1))
    for number in range(5):
        commit(node.store, [make_batch(number)])
        node.families.tick()
        node.families.status()
    assert len(decoded) == 1
    value = json.dumps([{"family": "intkey", "version": "2.0"}])
    commit(node.store, [make_batch("other")], permitting(value))
    assert list(node.warnings()) == [V2]
    assert len(decoded) == 2


def test_who_waits_for_another_migration_is_told_so(node: Node) -> None:
    v3 = FamilyVersion("intkey", "3.0")
    node.bench.register(b"a", family=V2, migrates=True)
    node.bench.register(b"b", family=v3, migrates=True)
    node.permit(Permission(v3, 0, migrate=("1cf12600",)), Permission(V2, 0, migrate=("1cf126",)))
    (warned,) = node.families.unready()
    assert warned.family == V2
    assert "migrates state that intkey 3.0 has to migrate before, which is not done" in warned.warning
    node.migrations[v3] = ("DONE", "")
    assert node.families.unready() == []


def test_of_several_entries_the_one_that_waits_for_its_migration_is_told(node: Node) -> None:
    node.bench.register(b"a", family=V2)
    node.permit(Permission(V2), Permission(V2, 0, migrate=("1cf126",)))
    assert node.told()[V2].migration == FamilyStatus.DUE
    (warned,) = node.families.unready()
    assert "migrates 1cf126 first, which none of its 1 processors here does" in warned.warning
