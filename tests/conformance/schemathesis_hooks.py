"""What schemathesis cannot read out of a document: bodies that are signed, and positions that a list really has.

Loaded by schemathesis itself, see test_schemathesis. No check is changed here: the hooks only make what the document
calls valid valid in the node's own eyes as well.
"""

import json
import os
import re
from typing import Any

import schemathesis
from hypothesis import strategies as st

from dovetail.ledger.building import build_batch, encode_batch_list
from dovetail.ledger.signing import Signer
from families.intkey.client import intkey_transaction

_SIGNER = Signer("77" * 32)
_ITEMS_MIN = 4
"""Every list of the node under test has at least as many items, so that these indexes are in each of them."""


def _batch_list(numbers: list[int]) -> bytes:
    batches = []
    for number in numbers:
        name = f"st{number % 10**6}"
        transaction = intkey_transaction(_SIGNER, _SIGNER.public_key, "set", name, number, f"nonce{number}")
        batches.append(build_batch(_SIGNER, [transaction]))
    return encode_batch_list(batches)


# A body is good only when it is signed, which no schema can ask for.
schemathesis.openapi.media_type(
    "application/octet-stream", st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3).map(_batch_list)
)


_IDS: dict[str, str] = json.loads(os.environ["DOVETAIL_SCHEMATHESIS_IDS"])
_is_name = re.compile(r"[0-9]+|[0-9a-f]{70}|[0-9a-f]{128}").fullmatch


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Make every other id in a path that could exist one that does, and put the ends of a page into the list."""
    named = case.path_parameters or {}
    for name, value in named.items():
        if isinstance(value, str) and _is_name(value) and value[-1] in "02468ace":
            named[name] = _IDS[name]
    query = case.query or {}
    ends = {"min": "0", "max": str(_ITEMS_MIN - 1)}
    given = [name for name in ends if isinstance(query.get(name), str) and _is_name(query[name])]
    # Where something else narrows the list there may be no item to name.
    narrowed = "{address}" in case.operation.path or any(name in query for name in ("head", "id", "address"))
    for name in given:
        if narrowed:
            del query[name]
        else:
            query[name] = ends[name]
