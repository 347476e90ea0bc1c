"""The bound on the details of one status answer: messages and extended data of its batches.

Validator and REST API apply it, each to the whole answer that it gives.
"""

from typing import Final

from protos.client_batch_submit_pb2 import ClientBatchStatus

_CHARACTER_BYTES: Final = 6
"""The most bytes of one character in JSON, as in \\u0000; its UTF-8 is shorter."""


class DetailRoom:
    """The room left for the details of one answer. ``bytes_max``: its bytes as JSON."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._used = False

    def fit(self, status: ClientBatchStatus) -> ClientBatchStatus:
        """Leave out of ``status`` what does not fit, and count it in ``omitted_bytes``. The first details always fit.

        Extended data goes before messages. Status, reason, ids and families stay.
        """
        for invalid in status.invalid_transactions:
            if not self._takes((len(invalid.extended_data) + 2) // 3 * 4):
                status.omitted_bytes += len(invalid.extended_data)
                invalid.ClearField("extended_data")
            if not self._takes(_CHARACTER_BYTES * len(invalid.message)):
                status.omitted_bytes += len(invalid.message.encode())
                invalid.ClearField("message")
        if not self._takes(_CHARACTER_BYTES * len(status.message)):
            status.omitted_bytes += len(status.message.encode())
            status.ClearField("message")
        return status

    def _takes(self, size: int) -> bool:
        if size > self._left and self._used:
            return False
        self._left -= size
        self._used = self._used or size > 0
        return True
