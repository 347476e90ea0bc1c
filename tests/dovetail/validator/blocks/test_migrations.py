"""Migrations at a node on a real socket: when they are queued, which processors run them, and how they end."""

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.ledger import migration
from dovetail.ledger.permitted import PERMITTED_AT, Permission
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.journal import migrations
from dovetail.validator.node import Node
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchSubmitRequest, ClientBatchSubmitResponse
from protos.processor_pb2 import TpProcessResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.activations import (
    ERROR,
    INVALID,
    NAMESPACES,
    OK,
    OTHER,
    PREFIX,
    SETTINGS,
    V1,
    V2,
    answer,
    asked,
    batch_of,
    block_of,
    change_plan,
    leave,
    migrations_on,
    network,
    register,
    say,
    status_of,
    submit,
    told,
)
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import LIMITS, SIGNER


async def reached(node: Node, permission: Permission, state: str, peer: Peer) -> None:
    """Wait until a migration has ``state``: the node may handle another peer's messages later than this query."""
    while node._production.migrating.state_of(permission)[0] != state:
        await peer.ping()


@pytest.mark.parametrize("leaves", [0, 5, 2_001])
def test_a_migration_runs_by_itself_before_its_version(tmp_path: Path, leaves: int) -> None:
    async def test() -> None:
        plan = [Permission(V1, until_block=1), Permission(V2, 2, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, leaves=leaves) as (node, (processor, client)):
            await register(processor, V1)
            await register(processor, V2, migrates=True)
            await submit(client, batch_of(V1))
            assert (await answer(processor)).family_version == "1.0"
            slices = 256 if leaves > 2_000 else 1
            for number in range(slices):
                header = await answer(processor)
                assert header.signer_pubkey == header.batcher_pubkey == migration.PUBLIC_KEY
                assert (header.family_name, header.family_version) == V2
                assert header.nonce == migration.nonce(number, slices, 2, NAMESPACES)
                assert header.payload_encoding == migration.PAYLOAD_ENCODING
                assert [*header.inputs] == [*header.outputs] == [PREFIX + ("" if slices == 1 else f"{number:02x}")]
            assert (await answer(processor)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [2]
            assert block_of(node, early.id) == 3
            assert node._production.migrating.state_of(plan[1]) == ("DONE", "")
        # A restarted node has nothing left to migrate.
        again = batch_of(V2, nonce="again")
        async with network(tmp_path, plan, again, chain=False) as (node, (processor, client)):
            await register(processor, V2, migrates=True)
            assert (await answer(processor)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, again, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [2]

    run(test)


def test_a_refused_migration_stops_no_other_batch_and_runs_again(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1), Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3) as (node, (first, second, client)):
            await register(first, V2, migrates=True)
            assert (await answer(first, INVALID)).signer_pubkey == migration.PUBLIC_KEY
            await register(first, V1)
            old = batch_of(V1)
            await submit(client, old)
            assert (await answer(first)).family_version == "1.0"
            assert (await status_of(client, old, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (await status_of(client, early)).reason == "waiting_for_activation"
            assert node._production.migrating.state_of(plan[1]) == ("REFUSED", "invalid_transaction: so it said")
            # The processor that registered last gets the task, because it may be the repaired build.
            await register(second, V2, migrates=True)
            assert (await answer(second)).signer_pubkey == migration.PUBLIC_KEY
            assert (await answer(first)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [2]

    run(test)


def test_without_a_migrating_processor_only_the_version_waits(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V1), Permission(V2, 1, migrate=NAMESPACES)]
        early, old = batch_of(V2), batch_of(V1)
        async with network(tmp_path, plan, early) as (node, (processor, client)):
            await register(processor, V1, V2)
            await submit(client, old)
            assert (await answer(processor)).family_version == "1.0"
            assert (await status_of(client, old, wait=True)).status == ClientBatchStatus.COMMITTED
            assert (await status_of(client, early)).reason == "waiting_for_activation"
            assert node._production.migrating.state_of(plan[1]) == ("DUE", "")

    run(test)


def test_a_migration_whose_processor_is_lost_or_fails_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3, leaves=2_001) as (node, (first, second, client)):
            await register(first, V2, migrates=True)
            for _ in range(100):
                await answer(first)
            await asked(first)
            first.socket.close()
            await register(second, V2, migrates=True)
            assert (await answer(second, ERROR)).nonce == migration.nonce(0, 256, 1, NAMESPACES)
            for number in range(256):
                assert (await answer(second)).nonce == migration.nonce(number, 256, 1, NAMESPACES)
            assert (await answer(second)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == [1]

    run(test)


def test_a_migration_uses_the_1x_conversation(tmp_path: Path) -> None:
    """Packed processors also migrate by the 1.x conversation, because lists and writes may exceed a packed message."""

    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early) as (_, (processor, _)):
            await register(processor, V2, migrates=True, packed=True)
            assert (await answer(processor)).signer_pubkey == migration.PUBLIC_KEY
            while (await processor.receive()).message_type != Envelope.PACKED_PROCESS_REQUEST:
                pass

    run(test)


def test_clients_cannot_submit_a_migration(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 5, migrate=NAMESPACES)]
        async with network(tmp_path, plan) as (node, (_, client)):
            request = ClientBatchSubmitRequest()
            due = migrations.batch_for(plan[0], node._production._base())
            request.batches.add().ParseFromString(due.raw)
            response = await told(
                client, request.SerializeToString(), Envelope.CLIENT_BATCH_SUBMIT_REQUEST,
                Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, ClientBatchSubmitResponse,
            )  # fmt: skip
            assert response.status == ClientBatchSubmitResponse.INVALID_BATCH
            assert "the key of migrations" in response.message

    run(test)


def test_only_a_migrating_processor_gets_a_migration(tmp_path: Path) -> None:
    """An old build or a 1.x processor might answer OK to a migration that it does not understand."""

    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=4) as (_, (first, migrating, last, client)):
            await register(first, V2)
            await register(migrating, V2, migrates=True)
            await register(last, V2)
            correlation_id, request = await asked(migrating)
            assert request.migration
            # The migration waits for a migrating processor, although others are connected.
            await leave(migrating)
            say(migrating, correlation_id, ERROR)
            while (await status_of(client, early)).reason != "waiting_for_activation":
                pass
            await register(migrating, V2, migrates=True)
            assert (await answer(migrating)).signer_pubkey == migration.PUBLIC_KEY
            correlation_id, request = await asked(first)
            assert request.header.signer_pubkey == SIGNER.public_key
            assert not request.migration
            say(first, correlation_id)
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED

    run(test)


def test_other_builds_try_after_a_refusing_build_has_left(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        async with network(tmp_path, plan, peers=2) as (_, (good, refusing)):
            await register(good, V2, migrates=True)
            await register(refusing, V2, migrates=True)
            assert (await answer(refusing, INVALID)).signer_pubkey == migration.PUBLIC_KEY
            await leave(refusing)
            assert (await answer(good)).signer_pubkey == migration.PUBLIC_KEY

    run(test)


def test_a_refusal_holds_for_its_plan_only(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V2, 1, migrate=NAMESPACES)]
        async with network(tmp_path, plan, peers=3) as (node, (processor, proposing, client)):
            await register(proposing, SETTINGS)
            await register(processor, V2, migrates=True)
            await answer(processor, INVALID)
            anew = Permission(V2, 1, migrate=(PREFIX + "00",))
            await change_plan(proposing, client, plan[0], anew)
            assert [*(await answer(processor, INVALID)).inputs] == [PREFIX + "00"]
            # The same entries in another order are a change too, and allow another try.
            await change_plan(proposing, client, anew, plan[0])
            await answer(processor)
            await reached(node, anew, "DONE", client)

    run(test)


def test_a_cancelled_plan_removes_its_migration(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V2, 1, migrate=NAMESPACES)]
        async with network(tmp_path, plan, peers=3) as (node, (processor, proposing, client)):
            await register(proposing, SETTINGS)
            await register(processor, V2, migrates=True)
            await answer(processor, ERROR)
            await change_plan(proposing, client, plan[0])
            await client.ping()
            assert len(node._queue) == 0
            await change_plan(proposing, client, *plan)
            assert (await answer(processor)).signer_pubkey == migration.PUBLIC_KEY

    run(test)


def test_a_version_that_is_planned_again_migrates_again(tmp_path: Path) -> None:
    """Meanwhile the old version has written state in its own format."""

    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V2, 1, migrate=NAMESPACES)]
        async with network(tmp_path, plan, peers=3) as (node, (processor, proposing, client)):
            await register(proposing, SETTINGS)
            await register(processor, V2, migrates=True)
            await answer(processor)
            await change_plan(proposing, client, plan[0], Permission(V1))
            await change_plan(proposing, client, plan[0], Permission(V2, 4, migrate=NAMESPACES))
            assert (await answer(processor)).nonce == migration.nonce(0, 1, 4, NAMESPACES)
            last = Permission(V2, 6, migrate=(*NAMESPACES, "ab" * 35))
            await change_plan(proposing, client, plan[0], last)
            assert (await answer(processor)).nonce == migration.nonce(0, 1, 6, last.migrate)
            await reached(node, last, "DONE", client)
            assert len(migrations_on(node)) == 3

    run(test)


def test_versions_on_the_same_state_migrate_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        v3, other = FamilyVersion("f", "3.0"), FamilyVersion("other", "3.0")
        plan = [
            Permission(v3, 1, migrate=(PREFIX + "00",)),
            Permission(V2, 0, migrate=NAMESPACES),
            Permission(other, 1, migrate=("abcdef",)),
        ]
        async with network(tmp_path, plan, batch_of(v3), peers=4) as (node, (second, first, third, _client)):
            await register(second, v3, migrates=True)
            await register(third, other, migrates=True)
            # A version on other state does not wait for the migration.
            assert (await answer(third)).signer_pubkey == migration.PUBLIC_KEY
            await register(first, V2, migrates=True)
            assert (await answer(first)).signer_pubkey == migration.PUBLIC_KEY
            assert (await answer(second)).signer_pubkey == migration.PUBLIC_KEY
            assert (await answer(second)).signer_pubkey == SIGNER.public_key
            blocks = migrations_on(node)
            assert len(blocks) == 3
            assert blocks[1] < blocks[2]

    run(test)


def test_few_large_leaves_are_sliced(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        value = bytes(migration.BYTES_MAX // 4 + 1)
        async with network(tmp_path, plan, leaves=4, value=value) as (_, (processor, _)):
            await register(processor, V2, migrates=True)
            assert (await answer(processor)).nonce == migration.nonce(0, 256, 1, NAMESPACES)

    run(test)


HURRIED = replace(LIMITS, block_execution_ms_max=0)
"""A block ends with the first result; unfinished tasks continue in the next one."""


@pytest.mark.parametrize("verdict", [OK, INVALID])
def test_a_plan_with_another_end_has_the_same_migration(tmp_path: Path, verdict: TpProcessResponse.Status) -> None:
    """The plan changes while the migration runs."""

    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V2, 1, migrate=(PREFIX, "abcdef"))]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3, limits=HURRIED) as (node, (processor, proposing, client)):
            await register(proposing, SETTINGS)
            await register(processor, V2, migrates=True)
            held, _ = await asked(processor)
            changed = Permission(V2, 1, 1_000, migrate=("abcdef", PREFIX))
            await change_plan(proposing, client, plan[0], changed)
            say(processor, held, verdict)
            if verdict == INVALID:
                await reached(node, changed, "REFUSED", client)
                await leave(processor)
                await register(processor, V2, migrates=True)
                assert (await answer(processor)).signer_pubkey == migration.PUBLIC_KEY
            assert (await answer(processor)).signer_pubkey == SIGNER.public_key
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert len(migrations_on(node)) == 1

    run(test)


def test_a_changed_plan_without_migration_drops_the_running_one(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3, limits=HURRIED) as (node, (processor, proposing, client)):
            await register(proposing, SETTINGS)
            await register(processor, V2, migrates=True)
            held, _ = await asked(processor)
            await change_plan(proposing, client, plan[0], Permission(V2, 1))
            say(processor, held)
            correlation_id, request = await asked(processor)
            assert request.header.signer_pubkey == SIGNER.public_key
            assert not request.migration
            say(processor, correlation_id)
            assert (await status_of(client, early, wait=True)).status == ClientBatchStatus.COMMITTED
            assert migrations_on(node) == []

    run(test)


def test_a_migration_does_not_wait_for_other_batches(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(OTHER), Permission(V2, 1, migrate=NAMESPACES)]
        early = batch_of(V2)
        async with network(tmp_path, plan, early, peers=3) as (_, (slow, processor, client)):
            await register(slow, OTHER)
            await submit(client, batch_of(OTHER))
            await asked(slow)
            await register(processor, V2, migrates=True)
            assert (await answer(processor)).signer_pubkey == migration.PUBLIC_KEY

    run(test)


def test_after_a_migration_ends_its_processor_another_one_gets_it(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        async with network(tmp_path, plan, peers=3) as (node, (good, first, second)):
            await register(first, V2, migrates=True)
            await asked(first)
            await register(good, V2, migrates=True)
            # The processor that registered last is the one that just ended, restarted.
            await register(second, V2, migrates=True)
            first.socket.close()
            assert (await answer(good)).signer_pubkey == migration.PUBLIC_KEY
            await reached(node, plan[0], "DONE", second)

    run(test)


def test_a_processor_that_does_not_migrate_ends_no_refusal(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(V2, 1, migrate=NAMESPACES)]
        async with network(tmp_path, plan, peers=2) as (node, (good, old)):
            await register(good, V2, migrates=True)
            await answer(good, INVALID)
            await reached(node, plan[0], "REFUSED", old)
            await register(old, V2)
            await leave(old)
            assert node._production.migrating.state_of(plan[0])[0] == "REFUSED"

    run(test)


def test_a_waiting_migration_is_sliced_again_before_its_next_try(tmp_path: Path) -> None:
    async def test() -> None:
        plan = [Permission(SETTINGS), Permission(V2, 1, migrate=(PERMITTED_AT[:6],))]
        # The back-off must be long enough that the plan can change during the back-off, also on a busy machine.
        limits = replace(LIMITS, internal_error_back_off_ms=5_000)
        async with network(tmp_path, plan, peers=3, limits=limits) as (_, (processor, proposing, client)):
            await register(processor, V2, migrates=True)
            assert (await answer(processor, ERROR)).nonce == migration.nonce(0, 1, 1, plan[1].migrate)
            await register(proposing, SETTINGS)
            await change_plan(proposing, client, *plan, padding=migration.BYTES_MAX)
            assert (await answer(processor)).nonce == migration.nonce(0, 256, 1, plan[1].migrate)

    run(test)
