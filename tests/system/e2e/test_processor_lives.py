"""How processors connect, count as alive, and leave while they have tasks, in both protocols."""

import signal
from collections.abc import Callable

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.process import DEADLINE_S
from tests.system.e2e.script_family import HANDLER, NAMESPACE, Gate, ScriptHandler, bare_apply, script
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess
from tests.system.independent.client import Batch
from tests.system.independent.messages import Status

_QUICK = {"DOVETAIL_LIMITS_PROCESSOR_PING_MS": "100", "DOVETAIL_LIMITS_PROCESSOR_SILENCE_MS": "1200"}
_LONGER_THAN_SILENCE_S = 2


def _held(author: Author, family: str, gate: Gate) -> Batch:
    """A batch whose apply waits at the gate."""
    return author.batch(author.transaction(family, script(("hold", gate.port))))


class TestPings:
    """WIRE.md: a ping is answered also while an apply runs; a silent processor is dropped."""

    def test_validator_answers_a_processor_in_the_middle_of_an_apply(
        self, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        processors: list[BareProcessor] = []

        def apply(request: ProcessRequest, state: StateAccess) -> None:
            processors[0].ping()

        with BareProcessor(shared.network.validator_url, named("family"), "1.0", [NAMESPACE], apply) as processor:
            processors.append(processor)
            shared.api.commit(author.batch(author.transaction(named("family"), b"")))
            assert processor.failures == []

    def test_long_apply_is_kept_by_a_processor_that_answers_pings(
        self, networks: Networks, author: Author, gate: Gate
    ) -> None:
        network = networks(**_QUICK)
        up, api = network.up(), networks.api(network)
        network.processor(HANDLER).wait_logged("ready")
        with BareProcessor(network.validator_url, "e2e_bare", "1.0", [NAMESPACE], bare_apply) as bare:
            batches = [_held(author, family, gate) for family in (ScriptHandler.family_name, "e2e_bare")]
            api.accept(*batches)
            gate.wait()
            gate.wait()
            # By the validator's clock, a silent processor would have been dropped by now.
            assert api.words(*batches, wait=_LONGER_THAN_SILENCE_S) == ["PENDING", "PENDING"]
            assert [api.details(batch)["reason"] for batch in batches] == ["executing", "executing"]
            assert bare.pings_answered > 0
            assert up.count_logged("processor left") == 0
            gate.open()
            assert api.settle(*batches) == ["COMMITTED", "COMMITTED"]
            assert len(bare.requests) == 1

    def test_silent_processor_is_dropped_and_its_work_goes_to_another(
        self, networks: Networks, author: Author, gate: Gate
    ) -> None:
        network = networks(**_QUICK)
        up, api = network.up(), networks.api(network)
        with BareProcessor(network.validator_url, "e2e_bare", "1.0", [NAMESPACE], bare_apply) as silent:
            silent.answer_pings = False
            batch = _held(author, "e2e_bare", gate)
            api.accept(batch)
            gate.wait()
            left = up.wait_logged("processor left", families=["e2e_bare 1.0"])
            assert "silent" in left.logged["reason"]
            with BareProcessor(network.validator_url, "e2e_bare", "1.0", [NAMESPACE], _accept_all) as other:
                assert api.settle(batch) == ["COMMITTED"]
                assert len(other.requests) == 1
            gate.open()
        assert api.words(batch) == ["COMMITTED"]


class TestSlowApplies:
    """A slow batch does not delay others: blocks are committed without it, and a later block holds it."""

    def test_other_families_commit_while_applies_hang_in_both_protocols(
        self, networks: Networks, author: Author, gate: Gate
    ) -> None:
        network = networks(DOVETAIL_LIMITS_BLOCK_EXECUTION_MS_MAX="1")
        network.up()
        api = networks.api(network)
        network.processor(HANDLER).wait_logged("ready")
        with BareProcessor(network.validator_url, "e2e_bare", "1.0", [NAMESPACE], bare_apply, workers=1) as bare:
            families = (ScriptHandler.family_name, "e2e_bare")
            held = [_held(author, family, gate) for family in families]
            api.accept(*held)
            gate.wait()
            gate.wait()
            for number in range(3):
                api.commit(author.batch(author.intkey("set", f"passer-by {number}", number)))
            # More batches of the same families than their processors take at once.
            behind = [author.batch(author.transaction(family, script())) for family in families for _ in range(20)]
            api.accept(*behind)
            api.commit(author.batch(author.intkey("inc", "passer-by 0", 1)))
            assert set(api.words(*held)) == {"PENDING"}
            gate.open()
            assert set(api.settle(*held, *behind)) == {"COMMITTED"}
            ran = [request.signature for request in bare.requests]
            assert len(ran) == len(set(ran)) == 21


class TestLeaving:
    """WIRE.md: after unregistration a processor gets no new work and finishes its tasks.

    A lost connection frees its tasks.
    """

    def test_bare_processor_unregisters_and_finishes_what_it_holds(
        self, shared: Shared, author: Author, named: Callable[[str], str], gate: Gate
    ) -> None:
        family, url, api = named("family"), shared.network.validator_url, shared.api
        held, later = _held(author, family, gate), author.batch(author.transaction(family, script()))
        with BareProcessor(url, family, "1.0", [NAMESPACE], bare_apply) as leaving:
            api.accept(held)
            gate.wait()
            assert leaving.unregister() == Status.OK
            api.accept(later)
            assert api.words(held, later) == ["PENDING", "PENDING"]
            gate.open()
            assert api.settle(held) == ["COMMITTED"]
            assert len(leaving.requests) == 1
            assert api.details(later) == {
                "reason": "waiting_for_processor",
                "family_name": family,
                "family_version": "1.0",
            }
            leaving.register()
            assert api.settle(later) == ["COMMITTED"]

    def test_sigterm_drains_the_packed_processor(self, networks: Networks, author: Author, gate: Gate) -> None:
        network = networks()
        up, api = network.up(), networks.api(network)
        leaving = network.processor(HANDLER)
        leaving.wait_logged("ready")
        family = ScriptHandler.family_name
        held, later = _held(author, family, gate), author.batch(author.transaction(family, script()))
        api.accept(held)
        gate.wait()
        mark = len(up.lines)
        leaving.request_end()
        up.wait_logged("processor left", after=mark, families=[f"{family} 1.0"], reason="it unregistered")
        api.accept(later)
        gate.open()
        assert api.settle(held) == ["COMMITTED"]
        assert leaving.wait() == 0
        assert api.details(later)["reason"] == "waiting_for_processor"
        network.processor(HANDLER)
        assert api.settle(later) == ["COMMITTED"]

    def test_packed_processor_killed_in_the_middle_of_an_apply(
        self, networks: Networks, author: Author, gate: Gate
    ) -> None:
        network = networks()
        up, api = network.up(), networks.api(network)
        killed = network.processor(HANDLER)
        killed.wait_logged("ready")
        batch = _held(author, ScriptHandler.family_name, gate)
        api.accept(batch)
        gate.wait()
        mark, workers = len(up.lines), killed.descendants()
        killed.signal(signal.SIGKILL)
        for worker in workers:
            worker.kill()
        killed.wait()
        up.wait_logged("processor left", after=mark, reason="its connection closed")
        assert api.words(batch) == ["PENDING"]
        network.processor(HANDLER)
        # The apply of the transaction begins again, at another processor.
        gate.wait()
        gate.open()
        assert api.settle(batch) == ["COMMITTED"]

    def test_bare_processor_that_dies_leaves_its_work_to_another(
        self, shared: Shared, author: Author, named: Callable[[str], str]
    ) -> None:
        family, url, api = named("family"), shared.network.validator_url, shared.api
        batch = author.batch(author.transaction(family, b""))

        def never_done(request: ProcessRequest, state: StateAccess) -> None:
            # The validator ignores unknown messages, so the request ends when the processor stops.
            dying.request(999, b"")

        dying = BareProcessor(url, family, "1.0", [NAMESPACE], never_done, timeout=DEADLINE_S)
        with dying, BareProcessor(url, family, "1.0", [NAMESPACE], _accept_all) as other:
            other.unregister()
            api.accept(batch)
            dying.wait_for_requests(1)
            other.register()
            assert api.words(batch) == ["PENDING"]
            dying.stop()
            assert api.settle(batch) == ["COMMITTED"]
            assert [request.signature for request in other.requests] == [batch.transactions[0].id]


def _accept_all(request: ProcessRequest, state: StateAccess) -> None:
    """An apply that changes nothing."""
