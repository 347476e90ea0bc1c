"""An example family for the compose file: an address holds one note, which is written once."""

from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler


class NotesHandler(TransactionHandler[bytes]):
    """The payload is the note. The transaction's only output is the note's address."""

    family_name = "notes"
    family_version = "1.0"
    namespaces = ("notes",)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        if len(transaction.header.outputs) != 1:
            raise InvalidTransaction(f"it declares {len(transaction.header.outputs)} outputs, not the one of the note")
        (address,) = transaction.header.outputs
        if context.get(address) is not None:
            raise InvalidTransaction(f"a note stands at {address} already")
        context.set(address, transaction.payload)
