"""The body of a verifier process: verifies the batches of each job, and ends with its standard input.

``verifier`` starts it. It imports little, because a node starts one for each core.
"""

import os
import pickle
import sys
from typing import Final

from dovetail.ledger.batch import checked_batch
from dovetail.streams import unblock
from dovetail.validator.admission.pipe import serve
from dovetail.validator.collector import collect_seldom
from protos import raw_pb2

_NICENESS: Final = 10
"""With few cores, the event loop and the processors go first. Batches that are verified too early only wait, and then
the verifiers have no work left while a block is written."""


def _answer(message: bytes) -> bytes:
    """The pickled results for a serialized RawBatchList."""
    batches = raw_pb2.RawBatchList.FromString(message).batches
    return pickle.dumps([checked_batch(raw) for raw in batches], pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    # A traceback must not wait for a reader: the validator waits for the end of this process.
    unblock()
    collect_seldom()
    os.nice(_NICENESS)
    serve(sys.stdin.fileno(), int(sys.argv[1]), _answer)
