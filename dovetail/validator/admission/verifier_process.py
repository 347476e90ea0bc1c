"""The body of a verifier process: answers each hand-over of batches with what was found, and ends with its input.

Started by ``dovetail.validator.admission.verifier``. It imports little: a node starts one for each core.
"""

import os
import pickle
import sys
from typing import Final

from dovetail.ledger.batch import checked_batch
from dovetail.validator.admission.pipe import serve
from dovetail.validator.collector import collect_seldom
from protos import raw_pb2

_NICENESS: Final = 10
"""Where cores are short the loop and the processors go first: what is verified earlier than they take it only waits,
and while a block is written nothing would be left to verify."""


def _answer(message: bytes) -> bytes:
    """A pickled list to a RawBatchList."""
    batches = raw_pb2.RawBatchList.FromString(message).batches
    return pickle.dumps([checked_batch(raw) for raw in batches], pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    collect_seldom()
    os.nice(_NICENESS)
    serve(sys.stdin.fileno(), int(sys.argv[1]), _answer)
