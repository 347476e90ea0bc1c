"""Asks the ledger for its head, for the status of every batch, and for the blocks that a load made."""

import time
from collections.abc import Sequence
from typing import Final

from dovetail.bench.closed_loop import WAIT_S
from dovetail.bench.signed_load import Post
from dovetail.client import DovetailClient
from dovetail.common.errors import Refused
from dovetail.ledger.limits import Limits

_STATUS_IDS: Final = Limits().status_ids_max
_BLOCKS_A_PAGE: Final = 20


def verify_committed(url: str, posts: Sequence[Post], started: float, seconds: float) -> float:
    """Check that every batch of a load is committed. Raises Refused if a batch does not commit.

    ``started``: the start of the load (``time.perf_counter()``). ``seconds``: its duration so far, which is returned.
    If a batch is still pending, waits for its commit and returns the longer duration.
    """
    ids = [batch_id for post in posts for batch_id in post.batch_ids]
    with DovetailClient(url) as client:
        for start in range(0, len(ids), _STATUS_IDS):
            asked = ids[start : start + _STATUS_IDS]
            statuses = client.batch_status(asked)
            late = [batch_id for batch_id in asked if statuses[batch_id].status == "PENDING"]
            if late:
                statuses |= client.batch_status(late, wait_s=WAIT_S)
                seconds = time.perf_counter() - started
            failed = [statuses[batch_id] for batch_id in asked if statuses[batch_id].status != "COMMITTED"]
            if failed:
                raise Refused(
                    f"{len(failed)} batches did not commit; {failed[0].id} is {failed[0].status}: {failed[0].why}"
                )
    return seconds


def head_number(url: str) -> int:
    """The newest block's number."""
    with DovetailClient(url) as client:
        return int(next(client.items("blocks", count=1))["header"]["block_num"])


def block_sizes(url: str, head: int) -> list[int]:
    """Transactions in each block above number ``head``, newest first."""
    sizes = []
    with DovetailClient(url) as client:
        for block in client.items("blocks", count=_BLOCKS_A_PAGE):
            if int(block["header"]["block_num"]) <= head:
                break
            sizes.append(sum(len(batch["transactions"]) for batch in block["batches"]))
    return sizes
