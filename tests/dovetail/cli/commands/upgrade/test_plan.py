"""The ``upgrade`` commands and the guards of ``settings`` with a scripted node: questions, refusals and output."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.cli.commands.upgrade import plan as planning
from dovetail.client import BatchStatus, DovetailClient
from dovetail.ledger import settings
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import FamilyVersion
from families.settings.candidates import Candidate, Proposal, Vote, decode_proposal, encode_candidates
from processor_sdk import TransactionHandler
from protos.batch_pb2 import BatchList
from protos.settings_pb2 import SettingsPayload, SettingVote
from protos.transaction_pb2 import Transaction, TransactionHeader
from tests.dovetail.conftest import FakeApi, Run

SETTINGS = Permission(FamilyVersion("sawtooth_settings", "1.0"))
V1, V2, V3 = (FamilyVersion("intkey", version) for version in ("1.0", "2.0", "3.0"))
HEAD = 10
FAMILIES = settings.TRANSACTION_FAMILIES
KEYS = ("02" + "a" * 64, "02" + "d" * 64)


class Node:
    """Accepts every batch, and puts its proposals in force at once unless ``obeys`` is False."""

    def __init__(self, api: FakeApi, key: str) -> None:
        """``key``: the public key of the commands, which may change settings."""
        self.api = api
        self.obeys = True
        self.outcome = "COMMITTED"
        self.proposed: list[str] = []
        self.bases: list[str] = []
        self.votes: list[str] = []
        self.voters: set[str] = set()
        self.meanwhile: Callable[[], None] | None = None
        """Runs between the command's first and second request for the head."""
        self._looks = 0
        ready = {"status": "ready", "head_id": "ab" * 64, "head_num": HEAD, "pending_batches": 0}
        api.answers["GET /readyz"] = (200, {"data": ready})
        api.answers["POST /batches"] = (202, {"link": ""})
        self._leaves: dict[str, str] = {}
        api.on_request = self._heard
        absent = (FAMILIES, settings.APPROVAL_THRESHOLD, settings.PROPOSALS, "some.other.setting")
        for name in absent:
            api.refuse(f"GET /state/{settings.setting_address(name)}", 404, 75, "State Not Found", "none")
        self.set(settings.AUTHORIZED_KEYS, ",".join((key, *KEYS)))
        self.tell()
        self.connect()
        self.count()

    def set(self, name: str, value: str) -> None:
        address = settings.setting_address(name)
        self._leaves[address] = base64.b64encode(settings.encode_setting({name: value})).decode()
        self.api.answers[f"GET /state/{address}"] = (200, {"data": self._leaves[address]})
        listed = [{"address": address, "data": data} for address, data in self._leaves.items()]
        self.api.answers["GET /state"] = (200, {"data": listed, "paging": {}, "head": ""})

    def permit(self, *entries: Permission) -> None:
        self.set(FAMILIES, encode_permitted_families(entries))

    def propose(self, *entries: Permission, votes: tuple[Vote, ...] = ()) -> None:
        self.propose_value(encode_permitted_families(entries), votes=votes)

    def propose_value(self, value: str, *, votes: tuple[Vote, ...] = (), base: str = "") -> None:
        candidate = Candidate("cd" * 32, Proposal(FAMILIES, value, "n"), votes, base)
        self.set(settings.PROPOSALS, encode_candidates([candidate]))

    def tell(self, *families: dict[str, Any]) -> None:
        self.api.answers["GET /status/families"] = (
            200,
            {"data": {"head_num": HEAD, "restricted": True, "families": list(families)}},
        )

    def connect(self, *processors: dict[str, Any]) -> None:
        self.api.answers["GET /status/processors"] = (200, {"data": list(processors)})

    def count(self, *committed: str) -> None:
        """Report one committed transaction of each ``family:version``."""
        totals = {name: {"transactions": {"committed": 1}} for name in committed}
        self.api.answers["GET /stats/validator"] = (200, {"data": {"timestamp": "", **totals}})

    def _heard(self) -> None:
        request = self.api.requests[-1]
        if request.target == "/readyz":
            self._looks += 1
            if self._looks == 2 and self.meanwhile:
                self.meanwhile()
        if request.method == "POST":
            (batch,) = BatchList.FromString(request.body).batches
            (transaction,) = batch.transactions
            self.api.answers["GET /batch_status"] = (200, {"data": {batch.header_signature: self.outcome}})
            self._take(transaction)

    def _take(self, transaction: Transaction) -> None:
        payload = SettingsPayload.FromString(transaction.payload)
        if payload.action == SettingsPayload.PROPOSE:
            value = decode_proposal(payload.data).value
            self.proposed.append(value)
            self.bases.append(payload.base)
            if self.obeys:
                self.set(FAMILIES, value)
        else:
            self.votes.append(SettingVote.FromString(payload.data).proposal_id)
            self.voters.add(TransactionHeader.FromString(transaction.header).signer_pubkey)


@pytest.fixture
def node(api: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> Node:
    key = json.loads(run("keygen", "tester", "--json").out)["public_key"]
    monkeypatch.setenv("DOVETAIL_URL", api.url)
    return Node(api, key)


def family(version: str = "2.0", **members: Any) -> dict[str, Any]:
    return {
        "family_name": "intkey", "family_version": version, "permission": "permitted", "migrates": [],
        "migration": "none", "processors": 1, "migrating_processors": 0, "pending": {}, **members,
    }  # fmt: skip


def processor(build: str, *, state: str = "takes_work", version: str = "2.0") -> dict[str, Any]:
    served = {
        "family_name": "intkey", "family_version": version, "build_id": build, "migrates": False,
        "namespaces": ["1cf126"],
    }  # fmt: skip
    return {"state": state, "families": [served]}


PLAN = ("upgrade", "plan", "intkey", "1.0", "2.0", "--at", "+10")
CANCEL = ("upgrade", "cancel", "intkey", "2.0")
MIGRATES = Permission(V2, 5, None, ("1cf126",))
UNMADE = family(from_block=5, migrates=["1cf126"], migration="refused", migration_message="too much")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[]", "could not enter block 0: no setting"),
        ("nonsense", "is no JSON"),
        ('[{"family": "sawtooth_settings", "version": "9.9"}]', "could not enter block 0"),
        ('[{"family": "sawtooth_settings", "version": "1.0", "until_block": 99}]', "could not enter block 100"),
    ],
)
def test_what_would_lock_the_settings_is_not_proposed(run: Run, node: Node, value: str, said: str) -> None:
    node.obeys = False
    done = run("settings", "propose", FAMILIES, value)
    assert (done.code, node.proposed) == (1, [])
    assert said in done.err
    assert run("settings", "propose", "some.other.setting", value).code == 0
    assert node.proposed == [value]


def test_a_value_that_locks_is_read_as_the_node_reads_it_and_a_plan_corrects_it(run: Run, node: Node) -> None:
    """The settings family is permitted whatever the value says, so the next plan names it."""
    node.permit(Permission(V1))
    assert run("upgrade", "status").code == 0
    assert run(*PLAN, "--yes").code == 0
    assert node.proposed == [encode_permitted_families([SETTINGS, Permission(V1), Permission(V2, 20)])]


def test_a_plan_names_the_value_that_it_changes(run: Run, node: Node) -> None:
    """The ledger refuses the plan if the value is another one when the plan comes."""
    assert run(*PLAN, "--also", "intkey:1.0", "--yes").code == 0
    (first,) = node.proposed
    assert run("upgrade", "retire", "intkey", "1.0", "--until", "+50", "--yes").code == 0
    assert run("settings", "propose", FAMILIES, first).code == 0
    assert node.bases == ["unset", *(settings.value_digest(value) for value in node.proposed[:2])]


def test_a_second_plan_is_told_that_one_of_the_two_will_fall(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.propose(SETTINGS, Permission(V1), Permission(V2, 20))
    for words in (
        ("upgrade", "plan", "intkey", "1.0", "3.0", "--at", "+10", "--yes"),
        ("settings", "propose", FAMILIES, encode_permitted_families([SETTINGS])),
    ):
        done = run(*words)
        assert done.code == 0
        assert f"proposal {'cd' * 32} for the same setting is still voted on: when one of the two" in done.err


def test_a_plan_whose_setting_has_changed_is_shown_as_fallen_and_gets_no_vote(run: Run, node: Node) -> None:
    before = encode_permitted_families([SETTINGS, Permission(V1)])
    node.permit(SETTINGS, Permission(V1), Permission(V3, 20))
    node.propose_value(
        encode_permitted_families([SETTINGS, Permission(V1), Permission(V2, 20)]), base=settings.value_digest(before)
    )
    said = "this proposal cannot take effect, vote against it: the change of"
    done = run("upgrade", "status")
    assert (done.code, said in done.out) == (1, True)
    (told,) = json.loads(run("upgrade", "status", "--json").out)["proposals"]
    assert (told["changes"], len(told["late"])) == ([], 1)
    assert said in run("settings", "list").err
    assert "made against its value" in json.loads(run("settings", "list", "--json").out)["proposals"][0]["refusal"]
    refused = run("settings", "vote", "cd", "accept")
    assert (refused.code, node.votes) == (1, [])
    assert said in refused.err
    assert run("settings", "vote", "cd", "reject").code == 0
    node.permit(SETTINGS, Permission(V1))
    assert run("settings", "vote", "cd", "accept").code == 0


def test_a_setting_that_changes_meanwhile_is_not_undone(run: Run, node: Node) -> None:
    """Otherwise a version retired while the user thinks about a plan would be permitted again."""
    xo = Permission(FamilyVersion("xo", "1.0"))
    node.permit(SETTINGS, Permission(V1), xo)
    node.meanwhile = lambda: node.permit(SETTINGS, Permission(V1), xo._replace(until_block=11))
    done = run(*PLAN, "--yes")
    assert (done.code, node.proposed) == (1, [])
    assert "the setting has changed meanwhile" in done.err
    assert run(*PLAN, "--yes").code == 0
    assert '"until_block": 11' in node.proposed[0]


def test_a_block_that_comes_while_somebody_thinks_is_too_early(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))

    def move() -> None:
        node.api.answers["GET /readyz"][1]["data"]["head_num"] = HEAD + 20

    node.meanwhile = move
    done = run(*PLAN, "--yes")
    assert (done.code, node.proposed) == (1, [])
    assert "block 20 is too early, the head is block 30" in done.err


def test_what_was_committed_is_compared_with_the_setting(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.obeys = False
    done = run(*PLAN, "--yes")
    assert (done.code, len(node.proposed)) == (1, 1)
    assert "the setting is something else by now" in done.err


def test_the_same_is_not_proposed_twice(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.set(settings.APPROVAL_THRESHOLD, "2")
    node.propose(SETTINGS, Permission(V1), Permission(V2, 20))
    done = run(*PLAN, "--yes")
    assert (done.code, node.proposed) == (1, [])
    assert f"proposal {'cd' * 32} asks for the same and is still voted on; accept that one" in done.err


def test_ctrl_c_while_it_waits_says_that_the_proposal_stands(
    run: Run, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DovetailClient, "batch_status", interrupted)
    node.permit(SETTINGS, Permission(V1))
    done = run(*PLAN)
    assert (done.code, len(node.proposed)) == (130, 1)
    assert re.search("follow it: .*\nproposal [0-9a-f]{64} is submitted and stays open", done.err)


@pytest.mark.parametrize(
    ("details", "why"),
    [
        (
            {"family_name": "intkey", "family_version": "2.0", "message": "intkey 2.0 is permitted from block 9 on"},
            "waits intkey 2.0 is permitted from block 9 on",
        ),
        ({"family_name": "intkey", "family_version": "2.0", "message": "too bad"}, "waits intkey 2.0 too bad"),
        ({"family_name": "intkey", "family_version": "2.0"}, "waits intkey 2.0"),
        ({"message": "too bad"}, "waits too bad"),
    ],
)
def test_a_status_names_a_family_once(details: dict[str, str], why: str) -> None:
    assert BatchStatus("a" * 128, "PENDING", {"reason": "waits", **details}).why == why


@pytest.mark.parametrize(
    ("entries", "told", "words", "said"),
    [
        # Some blocks permit neither version.
        ((Permission(V1, 0, 12),), (), PLAN, "no version of intkey is permitted in blocks 13 to 19 then"),
        ((Permission(V1),), (), ("upgrade", "retire", "intkey", "1.0", "--until", "+2"), "from block 13 on then"),
        # A cancellation lifts the end of the old version.
        ((Permission(V1, 0, 19), Permission(V2, 20)), (), CANCEL, "the end of intkey 1.0 with block 19 is lifted"),
        # No block holds an earlier migration yet.
        (
            (Permission(V1, 0, 4), MIGRATES),
            (UNMADE,),
            ("upgrade", "plan", "intkey", "2.0", "3.0", "--at", "+10"),
            "the migration of intkey 2.0 from block 5 on was refused: intkey 3.0 would come on top of it",
        ),
        (
            (Permission(V1, 0, 4), MIGRATES),
            ({**UNMADE, "migration": "due", "migrating_processors": 1},),
            CANCEL,
            "the migration of intkey 2.0 is under way",
        ),
        # The prefixes of the plan's migration, or a missing --migrate.
        ((Permission(V1),), (), (*PLAN, "--migrate", "5b7349"), "5b7349 is outside of what .* declare: 1cf126"),
        (
            (Permission(V1),),
            (family(permission="not_permitted", migrating_processors=1),),
            PLAN,
            "1 connected processors of intkey 2.0 migrate state, and this plan has no --migrate",
        ),
    ],
)
def test_what_somebody_has_to_know_is_asked(
    run: Run, node: Node, entries: tuple[Permission, ...], told: tuple[Any, ...], words: tuple[str, ...], said: str
) -> None:
    node.permit(SETTINGS, *entries)
    node.tell(*told)
    node.connect(processor("spring"))
    done = run(*words)
    assert (done.code, node.proposed) == (1, [])
    assert re.search(said, done.err), done.err
    assert "nobody is there to ask" in done.err
    assert run(*words, "--yes").code == 0


def test_a_plan_that_says_all_there_is_to_say_is_not_asked_about(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.connect(processor("spring"))
    assert run(*PLAN, "--migrate", "1cf12600").code == 0
    assert json.loads(node.proposed[0])[-1]["migrate"] == ["1cf12600"]


def test_a_refused_migration_is_called_off_and_the_old_version_is_back(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1, 0, 4), MIGRATES)
    node.tell({**UNMADE, "migration": "done"})
    assert "its migration has rewritten" in run(*CANCEL, "--yes").err
    node.tell(UNMADE)
    done = run(*CANCEL, "--yes")
    assert done.code == 0
    assert "its end with block 4 is lifted" in done.out
    assert node.proposed == [encode_permitted_families([SETTINGS, Permission(V1)])]


def test_a_handler_that_migrates_nothing_is_no_migration(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(TransactionHandler[bytes]):
        family_name, family_version, namespaces = "intkey", "2.0", ("1cf126",)

        def apply(self, transaction: Any, context: Any) -> None:
            raise NotImplementedError

    monkeypatch.setattr("dovetail.cli.commands.upgrade.plan.make_handlers", lambda named: [Handler()])
    assert planning._prefixes(["1cf126", "1cf126"], V2) == ["1cf126"]
    done = run(*PLAN, "--migrate", "some:Handler")
    assert done.code == 1
    assert re.search("declares no migrate.* write migrate = Earlier.migrate", done.err)


def test_without_the_setting_the_plan_names_what_is_in_use_and_says_what_it_cannot_know(run: Run, node: Node) -> None:
    node.obeys = False
    node.count("intkey:1.0")
    assert "counted as one" not in run(*PLAN, "--yes").err
    node.count("intkey:1.0", "other:")
    assert "counted as one" in run(*PLAN, "--yes").err
    assert [entry["family"] for entry in json.loads(node.proposed[-1])] == ["sawtooth_settings", "intkey", "intkey"]


def test_status_counts_builds_that_take_work_and_votes_of_those_who_may(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.tell(family())
    node.connect(processor("new"), processor("old", state="draining"), processor("hung", state="silent"))
    assert run("upgrade", "status").code == 0
    assert json.loads(run("upgrade", "status", "--json").out)["families"][0]["builds"] == {"new": 1}
    node.set(settings.AUTHORIZED_KEYS, KEYS[0])
    node.set(settings.APPROVAL_THRESHOLD, "2")
    node.propose(SETTINGS, votes=(Vote(KEYS[0], True), Vote(KEYS[1], True)))
    (proposal,) = json.loads(run("upgrade", "status", "--json").out)["proposals"]
    assert (proposal["votes_for"], proposal["votes_against"]) == (1, 0)


def test_status_ends_with_1_until_everything_is_done_and_with_3_when_it_cannot_be_told(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    assert run("upgrade", "status").code == 0
    node.tell(family(migration="due", migrates=["1cf126"], migrating_processors=1))
    done = run("upgrade", "status")
    assert (done.code, done.err) == (1, "dovetail: something is not done:\nintkey 2.0: its migration is under way\n")
    node.tell()
    node.propose(SETTINGS, Permission(V1, 0, 11), Permission(V2, 11))
    done = run("upgrade", "status")
    assert done.code == 1
    assert "has 0 of 1 votes" in done.err
    for late in ("its block 11 has passed: intkey 1.0 ends with this vote", "intkey 2.0 comes with this vote"):
        assert late in done.out
        assert late in run("settings", "list").err
        assert late in run("settings", "vote", "cd", "accept").err
    assert "has passed" not in run("settings", "vote", "cd", "reject").err
    node.propose(SETTINGS, Permission(V1, 0, 12), Permission(V2, 12))
    assert "has passed" not in run("upgrade", "status").out
    node.set(settings.PROPOSALS, encode_candidates([]))
    node.permit(SETTINGS)
    node.tell(family(permission="ended", until_block=4))
    assert "until block 4, no more" in run("upgrade", "status").out
    assert run("upgrade", "status", "--url", "http://127.0.0.1:9").code == 3


@pytest.mark.parametrize(
    "members",
    [{"permission": "suspended"}, {"migrates": [1]}, {"pending": []}, {"until_block": "x"}, {"processors": None}],
)
def test_answers_of_another_shape_are_refused(run: Run, node: Node, members: dict[str, Any]) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.tell({**family(), **members})
    for words, code in ((("upgrade", "status"), 3), ((*PLAN, "--yes"), 1), ((*CANCEL, "--yes"), 1)):
        done = run(*words)
        assert (done.code, node.proposed) == (code, [])
        assert "not as Dovetail's REST API does" in done.err
    node.api.refuse("GET /status/families", 404, 60, "Not Found", "no route")
    assert "has no /status/families: it is an older Dovetail" in run("upgrade", "status").err


@pytest.mark.parametrize("head_num", [float("inf"), 1.0, "10", True, -1, 2**63, None])
def test_a_head_that_is_no_block_is_refused(run: Run, node: Node, head_num: object) -> None:
    node.api.answers["GET /readyz"][1]["data"]["head_num"] = head_num
    done = run("upgrade", "status")
    assert (done.code, "names no head" in done.err) == (3, True)
    node.propose(SETTINGS)
    assert run("settings", "list").code == 0
    assert run("settings", "vote", "cd", "accept").code == 0


@pytest.mark.parametrize("threshold", ["0", "9" * 5000, "01", "٣", ""])
def test_a_threshold_that_the_settings_family_would_not_take_is_refused(run: Run, node: Node, threshold: str) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.set(settings.APPROVAL_THRESHOLD, threshold)
    for words, code in ((("upgrade", "status"), 3), ((*PLAN, "--yes"), 1)):
        done = run(*words)
        assert (done.code, "no number of votes" in done.err, node.proposed) == (code, True, [])
    node.propose(SETTINGS)
    assert run("settings", "list").code == 0
    assert "no number of votes" in run("settings", "vote", "cd", "accept").err


def test_numbers_that_count_nothing_are_refused(run: Run, node: Node) -> None:
    for number in (-1, 2**63, float("nan")):
        node.tell(family(processors=number))
        assert run("upgrade", "status").code == 3


def test_a_plan_that_no_node_would_understand_is_not_proposed(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1))
    done = run(*PLAN, "--migrate", "1cf126", "--migrate", "1cf12600", "--yes")
    assert (done.code, node.proposed) == (1, [])
    assert "names what lies under 1cf126 twice" in done.err


def test_what_somebody_only_handed_in_is_not_in_use(run: Run, node: Node) -> None:
    """Anybody may submit batches with any family name. A submitted batch alone does not put a family into a plan."""
    junk = [family(family_name=f"junk{n}", processors=0, pending={"waiting_for_processor": 1}) for n in range(1000)]
    node.tell(*junk, family("1.0"), family(family_name="xo"))
    done = run(*PLAN, "--yes")
    assert done.code == 0
    assert re.search("1000 versions that no processor here serves.*with --also: junk0 2.0, .* and 990 more", done.err)
    named = [entry["family"] for entry in json.loads(node.proposed[0])]
    assert named == ["sawtooth_settings", "intkey", "xo", "intkey"]


@pytest.mark.parametrize(("status", "obeys", "in_force"), [("INVALID", False, False), ("COMMITTED", False, False),
                                                           ("COMMITTED", True, True)])  # fmt: skip
def test_in_force_is_said_of_what_is(run: Run, node: Node, status: str, obeys: bool, in_force: bool) -> None:
    node.permit(SETTINGS, Permission(V1))
    node.obeys, node.outcome = obeys, status
    done = run(*PLAN, "--yes", "--json")
    assert (done.code, json.loads(done.out)["in_force"]) == (0 if in_force else 1, in_force)


@pytest.mark.parametrize(
    ("entries", "proposed", "said"),
    [
        # A cancellation was proposed before the version's first block, and the vote comes after that block.
        (
            (Permission(V1, 0, 4), MIGRATES),
            (SETTINGS, Permission(V1)),
            "intkey 2.0 is permitted since block 5, and no more with this vote; where its migration is in a block",
        ),
        ((Permission(V1),), (SETTINGS,), "intkey 1.0 is permitted now, and no more with this vote"),
        ((Permission(V2, 5),), (SETTINGS, Permission(V2, 90)), "intkey 2.0 is permitted since block 5, and no more"),
        (
            (Permission(V1),),
            (SETTINGS, Permission(V1), Permission(V2, 20, None, ("1cf126",))),
            "intkey 1.0 goes on where intkey 2.0 rewrites, from block 20 on",
        ),
        ((), (SETTINGS._replace(until_block=99),), "sawtooth_settings 1.0 could not enter block 100: no setting"),
        (
            (),
            (SETTINGS, Permission(V2, 20, None, ("1cf126", "1cf12600"))),
            "this proposal cannot take effect, vote against it: sawtooth.validator",
        ),
        # No remark: a cancellation in time, a new end, and a version whose span is over.
        ((Permission(V1, 0, 19), Permission(V2, 20)), (SETTINGS, Permission(V1)), None),
        ((Permission(V2, 12),), (SETTINGS,), None),
        ((Permission(V1),), (SETTINGS, Permission(V1, 0, 50)), None),
        ((Permission(V1, 0, 11),), (SETTINGS,), None),
    ],
)
def test_voters_are_told_what_nobody_may_have_meant(
    run: Run, node: Node, entries: tuple[Permission, ...], proposed: tuple[Permission, ...], said: str | None
) -> None:
    node.permit(SETTINGS, *entries)
    node.propose(*proposed)
    (told,) = json.loads(run("upgrade", "status", "--json").out)["proposals"]
    assert [line for line in told["late"] if said is None or said not in line] == []
    assert bool(told["late"]) is (said is not None)
    for line in told["late"]:
        assert line in run("upgrade", "status").out
        assert line in run("settings", "list").err
        assert line in run("settings", "vote", "cd", "accept").err


XO = FamilyVersion("xo", "1.0")


@pytest.mark.parametrize(
    ("entries", "proposed", "voted"),
    [
        # The proposal is a plan of the version, also if the setting had an entry of that version before.
        (None, (SETTINGS, Permission(V1), Permission(V2, 100)), True),
        ((SETTINGS, Permission(V1), Permission(V2, 3, 5)), (SETTINGS, Permission(V2, 3, 5), Permission(V2, 100)), True),
        ((SETTINGS, Permission(V1)), (SETTINGS, Permission(V1), Permission(V2, 0, None, ("1cf126",))), True),
        # The proposal is no plan of the version: a first plan lists it as in use, or the version continues or ends.
        (None, (SETTINGS, Permission(V2), Permission(V3, 100)), False),
        ((SETTINGS, Permission(V2, 5)), (SETTINGS, Permission(V2, 5), Permission(V3, 100)), False),
        ((SETTINGS, Permission(V2, 5)), (SETTINGS, Permission(V2, 5, 50)), False),
    ],
)
def test_a_vote_is_cast_against_the_plan_of_the_version_and_no_other(
    run: Run, node: Node, entries: tuple[Permission, ...] | None, proposed: tuple[Permission, ...], voted: bool
) -> None:
    if entries:
        node.permit(*entries)
    node.set(settings.APPROVAL_THRESHOLD, "2")
    node.propose(*proposed, votes=(Vote(KEYS[0], True),))
    done = run(*CANCEL)
    assert (done.code, node.votes) == (1, [])
    assert ("nobody is there to ask whether to vote against proposal cdcd" in done.err) is voted
    assert run(*CANCEL, "--yes").code == (0 if voted else 1)
    assert node.votes == (["cd" * 32] if voted else [])
    if voted:
        assert "cdcdcdcdcdcdcdcd: intkey 2.0 from block" in done.err or "migrates 1cf126" in done.err


def test_who_has_voted_against_the_next_plan_calls_off_the_accepted_one(run: Run, node: Node) -> None:
    node.permit(SETTINGS, Permission(V1), Permission(V2, 50))
    planned = (SETTINGS, Permission(V1), Permission(V2, 100))
    node.propose(*planned, votes=(Vote(KEYS[0], True),))
    assert run(*CANCEL, "--yes").code == 0
    assert (node.votes, node.proposed) == (["cd" * 32], [])
    (mine,) = node.voters
    node.propose(*planned, votes=(Vote(KEYS[0], True), Vote(mine, False)))
    assert run(*CANCEL, "--yes").code == 0
    assert node.proposed == [encode_permitted_families([SETTINGS, Permission(V1)])]


def test_a_vote_against_a_plan_says_whether_it_has_fallen(run: Run, node: Node) -> None:
    node.set(settings.AUTHORIZED_KEYS, ",".join(KEYS))
    node.set(settings.APPROVAL_THRESHOLD, "1")
    node.propose(SETTINGS, Permission(V2, 20), votes=(Vote(KEYS[0], False),))
    assert "1 of 2 that let it fall" in run(*CANCEL, "--yes").err
    node._looks = 0
    node.meanwhile = lambda: node.set(settings.PROPOSALS, encode_candidates([]))
    assert "it has fallen with your vote" in run(*CANCEL, "--yes").err
