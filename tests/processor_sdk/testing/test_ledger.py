"""The ledger in memory: its inputs, its results, and every rule that it shares with the validator."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from dovetail.ledger.building import build_batch, build_transaction, encode_batch_list
from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import TRANSACTION_FAMILIES, encode_setting, setting_address
from dovetail.ledger.signing import Signer
from families.settings import client
from families.settings.handler import SettingsHandler
from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler
from processor_sdk.codecs import CborCodec, JsonCodec
from processor_sdk.testing import ApplyFailed, Event, Ledger, Result, State, UnsignedTransaction, Verdict

ALICE = Signer("11" * 32)
NAMESPACE = "abcdef"


@dataclass(frozen=True)
class Note:
    """The change at an address: text to write, or nothing to remove the entry."""

    address: str
    text: str = ""


class Notes(TransactionHandler[Note]):
    family_name = "notes"
    family_version = "1.0"
    namespaces = (NAMESPACE,)
    encodings: ClassVar = {"application/cbor": CborCodec(Note), "application/json": JsonCodec(Note)}

    def apply(self, transaction: Transaction[Note], context: Context) -> None:
        note = transaction.payload
        if note.text == "refused":
            raise InvalidTransaction("a bad word", b"more")
        if note.text == "bug":
            raise ZeroDivisionError("a bug")
        if not note.text:
            context.delete(note.address)
            return
        before = context.get(note.address) or b""
        context.set(note.address, before + note.text.encode())
        context.add_event("notes/written", [("address", note.address)], transaction.header.signer_pubkey.encode())
        context.add_receipt_data(before)


class OtherNotes(Notes):
    family_name = "other notes"


def place(number: int, namespace: str = NAMESPACE) -> str:
    return f"{namespace}{number:064x}"


class Text:
    """A custom codec."""

    def decode(self, data: bytes) -> str:
        return data.decode()

    def encode(self, value: str) -> bytes:
        return value.encode()


ONE, TWO = place(1), place(2)


@pytest.fixture
def notes() -> Ledger:
    return Ledger(Notes())


def note(ledger: Ledger, address: str = ONE, text: str = "x", **fields: object) -> UnsignedTransaction:
    return ledger.transaction(Note(address, text), **fields)  # type: ignore[arg-type]


def test_a_transaction_takes_effect_and_can_be_read_from_every_side(notes: Ledger) -> None:
    transaction = note(notes, signer=ALICE.public_key)
    result = notes.accepts(transaction)
    assert notes.state == result.changes == {ONE: b"x"}
    assert notes.events == [*result.events]
    assert notes.events == [Event("notes/written", (("address", ONE),), ALICE.public_key.encode())]
    assert notes.receipts[transaction.id].data == result.data == (b"",)
    assert notes.accepts(note(notes, text="")).changes == {ONE: None}
    assert not notes.state
    assert notes.accepts(note(notes, text="")).changes == {}
    assert notes.accepts(note(notes, text="", inputs=[])).changes == {}


def test_an_entry_without_bytes_reads_as_none_and_is_removed(notes: Ledger) -> None:
    """As at a validator: it is in the state, and no apply can tell it from an address that is not set."""
    notes.state[ONE] = b""
    assert notes.accepts(note(notes)).data == (b"",)
    assert notes.state == {ONE: b"x"}
    notes.state[ONE] = b""
    assert notes.accepts(note(notes, text="")).changes == {ONE: None}
    assert not notes.state


def test_a_handler_refuses(notes: Ledger) -> None:
    transaction = note(notes, text="refused")
    result = notes.refuses(transaction, "bad w.rd$")
    assert result == Result(Verdict.INVALID, "invalid_transaction", "a bad word", transaction.id, b"more")
    assert not result
    assert (dict(notes.state), notes.receipts, notes.events) == ({}, {}, [])


def test_a_bug_is_no_verdict(notes: Ledger) -> None:
    with pytest.raises(ApplyFailed, match=r"of notes 1\.0 gave no verdict: ZeroDivisionError: a bug") as failed:
        notes.apply(note(notes, text="bug"))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


class Broken(Text):
    """A codec with a mistake."""

    def decode(self, data: bytes) -> str:
        raise ZeroDivisionError("a bug")


class BrokenNotes(Notes):
    encodings: ClassVar = {"text/plain": Broken()}


def test_a_bug_in_a_codec_is_told_as_one() -> None:
    ledger = Ledger(BrokenNotes())
    with pytest.raises(ApplyFailed, match=r"no verdict: .*the codec of text/plain raised ZeroDivisionError: a bug"):
        ledger.apply(ledger.transaction("x"))


def test_expectations_that_fail_say_why(notes: Ledger) -> None:
    with pytest.raises(AssertionError, match=r"INVALID \(invalid_transaction\): a bad word"):
        notes.accepts(note(notes, text="refused"))
    with pytest.raises(AssertionError, match="it is not invalid but OK"):
        notes.refuses(note(notes))
    with pytest.raises(AssertionError, match="'good' is not found in: a bad word"):
        notes.refuses(note(notes, text="refused"), "good")


def test_batches_are_whole_or_nothing(notes: Ledger) -> None:
    notes.refuses([note(notes, ONE), note(notes, TWO), note(notes, TWO, "refused")])
    assert (dict(notes.state), notes.receipts) == ({}, {})
    result = notes.accepts([note(notes, ONE, "a"), note(notes, ONE, "b"), note(notes, TWO, "c")])
    assert notes.state == result.changes == {ONE: b"ab", TWO: b"c"}
    assert result.data == (b"", b"a", b"")


def test_a_batch_may_hold_several_families() -> None:
    ledger = Ledger(Notes(), OtherNotes())
    with pytest.raises(ValueError, match=r"handlers for: notes 1\.0, other notes 1\.0"):
        note(ledger)
    ledger.accepts([note(ledger, text=text, family=f) for text, f in [("a", "notes"), ("b", "other notes")]])
    ledger.refuses([note(ledger, text=t, family=f) for t, f in [("a", "notes"), ("refused", "other notes")]])
    assert ledger.state == {ONE: b"ab"}


def test_every_encoding_of_a_payload(notes: Ledger) -> None:
    notes.accepts(note(notes, encoding="application/json"))
    notes.accepts(notes.transaction(JsonCodec(Note).encode(Note(ONE, "y")), encoding="application/json"))
    assert notes.state.read(ONE, Text()) == "xy"
    notes.refuses(notes.transaction(b"", encoding="text/plain"), "knows application/cbor, application/json")
    notes.refuses(notes.transaction(b"{}", encoding="application/json"), "address")
    with pytest.raises(TypeError, match="has no codec for a Note in the encoding 'text/plain': give bytes"):
        note(notes, encoding="text/plain")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inputs": []}, "may not read"),
        ({"inputs": [TWO]}, "may not read"),
        ({"outputs": [TWO, NAMESPACE + "ff"]}, "may not write"),
        ({"address": place(1, "fedcba"), "inputs": [""], "outputs": [""]}, "the handler declares the namespaces"),
    ],
)
def test_what_is_not_declared_is_refused(notes: Ledger, fields: dict[str, object], said: str) -> None:
    notes.refuses(note(notes, **fields), said)  # type: ignore[arg-type]


def test_sizes_are_bounded() -> None:
    ledger = Ledger(Notes(), limits=Limits(state_value_bytes_max=3))
    ledger.refuses(note(ledger, text="long"), f"it wrote 4 bytes at {ONE}, one address holds at most 3")
    ledger = Ledger(Notes(), limits=Limits(receipt_bytes_max=100))
    ledger.refuses(note(ledger), "its receipt has .* bytes, at most 100 are kept")


def test_every_transaction_once_and_after_those_it_depends_on(notes: Ledger) -> None:
    first = note(notes)
    waits = note(notes, TWO, dependencies=[first.id])
    result = notes.apply(waits)
    assert (result.verdict, result.reason) == (Verdict.PENDING, "waiting_for_dependency")
    assert not result
    notes.accepts(first)
    notes.accepts(waits)
    notes.refuses(first, f"transaction {first.id} is already committed")
    bad = note(notes, text="refused")
    notes.refuses([note(notes), bad])
    assert notes.refuses(note(notes, dependencies=[bad.id])).reason == "dependency_invalid"
    own = note(notes)
    notes.accepts([own, note(notes, dependencies=[own.id])])
    with pytest.raises(RefusedBatch, match="twice: give one another nonce"):
        notes.apply([own, own])


def test_families_without_a_handler_wait_and_those_not_permitted_are_refused() -> None:
    setting = {TRANSACTION_FAMILIES: '[{"family": "other notes", "version": "1.0"}]'}
    ledger = Ledger(Notes(), state={setting_address(TRANSACTION_FAMILIES): encode_setting(setting)})
    ledger.refuses(note(ledger), r"notes 1\.0 is not permitted; .* permits: other notes 1\.0, sawtooth_settings 1\.0$")
    assert ledger.apply(ledger.transaction(b"", family="other notes", version="1.0")).reason == "waiting_for_processor"


def test_of_several_waits_and_refusals_the_validators_one_is_reported(notes: Ledger) -> None:
    nobody = notes.transaction(b"", family="nobody", version="1.0")
    assert notes.apply([note(notes, text="refused"), nobody]).reason == "waiting_for_processor"
    waits = note(notes, dependencies=["0" * 128])
    assert notes.apply([waits, nobody]).reason == "waiting_for_processor"
    done = note(notes)
    notes.accepts(done)
    assert notes.apply([nobody, done]).reason == "duplicate_transaction"


def test_a_setting_made_here_is_obeyed_here() -> None:
    ledger = Ledger(SettingsHandler(), Notes())
    keys = client.propose_authorized_keys(ALICE, ALICE.public_key, [ALICE.public_key], "n")
    families = '[{"family": "sawtooth_settings", "version": "1.0"}]'
    only_settings = client.propose(ALICE, ALICE.public_key, TRANSACTION_FAMILIES, families, "n")
    ledger.accepts(build_batch(ALICE, [keys.transaction, only_settings.transaction]))
    ledger.refuses(note(ledger, family="notes"), "notes 1.0 is not permitted")


def signed(payload: bytes = b"", batcher: str = ALICE.public_key, inputs: tuple[str, ...] = (NAMESPACE,)) -> object:
    return build_transaction(
        ALICE, batcher_pubkey=batcher, family_name="notes", family_version="1.0", inputs=inputs, outputs=inputs,
        payload=payload or CborCodec(Note).encode(Note(ONE, "x")), payload_encoding="application/cbor", nonce="n",
    )  # fmt: skip


def test_signed_ones_are_checked_as_the_validator_does(notes: Ledger) -> None:
    transaction = signed()
    batch = build_batch(ALICE, [transaction])  # type: ignore[list-item]
    notes.accepts(batch)
    notes.refuses(transaction, "already committed")  # type: ignore[arg-type]
    with pytest.raises(RefusedBatch, match="is not the key that signed the batch"):
        notes.apply(build_batch(Signer("22" * 32), [transaction]))  # type: ignore[list-item]
    for what in (transaction, batch):
        with pytest.raises(RefusedBatch, match=r"did not make this signature|SHA-512|no Transaction|no Batch"):
            notes.apply(what._replace(raw=what.raw.replace(b"notes", b"notez")))  # type: ignore[attr-defined]
    with pytest.raises(RefusedBatch, match="declared address 'zz'"):
        notes.apply(signed(inputs=("zz",)))  # type: ignore[arg-type]


def test_mistakes_of_the_test_itself_are_told(notes: Ledger) -> None:
    with pytest.raises(TypeError, match=r"is no handler: give instances, as in Ledger\(MyHandler\(\)\)"):
        Ledger(Notes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"two handlers for the family notes 1\.0"):
        Ledger(Notes(), Notes())
    with pytest.raises(TypeError, match="a bytes cannot be applied"):
        notes.apply(b"")  # type: ignore[arg-type]
    with pytest.raises(RefusedBatch, match="at least one transaction"):
        notes.apply([])
    for name in ("inputs", "outputs", "dependencies"):
        with pytest.raises(TypeError, match=f"{name} is the text ''; write a list"):
            note(notes, **{name: ""})


def test_what_the_door_refuses_is_refused(notes: Ledger) -> None:
    for fields, said in (
        ({"inputs": ["zz"]}, "declared address 'zz' is not an even number"),
        ({"outputs": ["abc"]}, "declared address 'abc' is not an even number"),
        ({"dependencies": ["1"]}, "its dependency '1' is not an id"),
        ({"signer": "bob"}, "signer 'bob' is not a compressed public key"),
    ):
        with pytest.raises(RefusedBatch, match=said):
            note(notes, **fields)
    with pytest.raises(RefusedBatch, match="its family_name has 257 characters"):
        notes.transaction(b"", family="x" * 257, version="1")
    half = [note(notes, inputs=[NAMESPACE] * 5_000, outputs=[NAMESPACE] * 5_000) for _ in range(2)]
    with pytest.raises(RefusedBatch, match="declares 20001 inputs and outputs, at most 20000"):
        notes.apply([*half, note(notes, inputs=[NAMESPACE], outputs=[])])
    notes.accepts(half)


def test_a_body_is_bounded_as_at_the_door() -> None:
    batch = build_batch(ALICE, [signed()])  # type: ignore[list-item]
    size = len(encode_batch_list([batch]))
    for what in (batch, signed(), [signed()]):
        Ledger(Notes(), limits=Limits(body_bytes_max=size)).accepts(what)  # type: ignore[arg-type]
        with pytest.raises(RefusedBatch, match=f"the list has {size} bytes, at most {size - 1} are allowed"):
            Ledger(Notes(), limits=Limits(body_bytes_max=size - 1)).apply(what)  # type: ignore[arg-type]


def test_a_handler_of_the_1x_sdk_is_refused_with_the_correction() -> None:
    class Old:
        family_versions: ClassVar = ["1.0"]

    with pytest.raises(TypeError, match=r"Ledger\(\*processor_sdk\.sawtooth\.adapted\(MyHandler\(\)\)\)"):
        Ledger(Old())  # type: ignore[arg-type]


class Lister(TransactionHandler[bytes]):
    family_name = "lister"
    family_version = "1.0"
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.set(place(0), transaction.payload)
        found = context.get_many([place(1), place(7)])
        listed = [address[-1] + data.decode() for address, data in context.list(NAMESPACE)]
        context.add_receipt_data(f"{[*found.values()]} {listed}".encode())


def test_lists_and_reads_go_by_pages_and_never_through_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = {place(3, "abcdee"): b"-", place(1, "abcdf0"): b"-"}
    state = {place(number): b"x" for number in (5, 1, 4, 2, 3)} | elsewhere
    ledger = Ledger(Lister(), state=state, limits=Limits(state_list_entries_max=2))
    monkeypatch.delattr(State, "__iter__")
    result = ledger.accepts(ledger.transaction(b"a"))
    assert result.data == (b"[b'x'] ['0a', '1x', '2x', '3x', '4x', '5x']",)
    del ledger.state[place(4)]
    first, second = (ledger.transaction(data) for data in (b"b", b"c"))
    assert ledger.accepts([first, second]).data[1] == b"[b'x'] ['0c', '1x', '2x', '3x', '5x']"


def test_state_is_read_and_prepared(notes: Ledger) -> None:
    notes.state[TWO] = b"two"
    notes.state[place(0, "aaaaaa")] = b"zero"
    assert list(notes.state) == [place(0, "aaaaaa"), TWO]
    assert notes.state.under(NAMESPACE) == {TWO: b"two"}
    for address in (kept := Ledger(state=dict(notes.state))).state:
        del kept.state[address]
    assert not kept.state
    notes.accepts(note(notes, TWO))
    assert notes.state[TWO] == b"twox"
    with pytest.raises(KeyError):
        notes.state.read(ONE, Text())
    with pytest.raises(ValueError, match="no address of 70"):
        notes.state["aa"] = b""
    with pytest.raises(TypeError, match="is str, not bytes"):
        notes.state[ONE] = "text"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="'a' is no prefix"):
        notes.state.under("a")
