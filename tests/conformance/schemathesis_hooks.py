"""Hooks that give schemathesis what no document declares: signed bodies, and positions that a list really has.

Loaded by schemathesis, see test_schemathesis. The hooks change no check. They change requests that are valid by the
document, so that the node finds them valid too.
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
"""Every list of the node under test has at least so many items, so smaller indexes exist."""


def _batch_list(numbers: list[int]) -> bytes:
    batches = []
    for number in numbers:
        name = f"st{number % 10**6}"
        transaction = intkey_transaction(_SIGNER, _SIGNER.public_key, "set", name, number, f"nonce{number}")
        batches.append(build_batch(_SIGNER, [transaction]))
    return encode_batch_list(batches)


# A body must be signed, which no schema can express.
schemathesis.openapi.media_type(
    "application/octet-stream", st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3).map(_batch_list)
)


_IDS: dict[str, str] = json.loads(os.environ["DOVETAIL_SCHEMATHESIS_IDS"])
_is_name = re.compile(r"[0-9]+|[0-9a-f]{70}|[0-9a-f]{128}").fullmatch


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Replace about half of the ids in paths by existing ids, and move the ends of a page into the list."""
    named = case.path_parameters or {}
    for name, value in named.items():
        if isinstance(value, str) and _is_name(value) and value[-1] in "02468ace":
            named[name] = _IDS[name]
    query = case.query or {}
    ends = {"min": "0", "max": str(_ITEMS_MIN - 1)}
    given = [name for name in ends if isinstance(query.get(name), str) and _is_name(query[name])]
    # A list that another parameter narrows may be empty. Then no item can be an end of the page.
    narrowed = "{address}" in case.operation.path or any(name in query for name in ("head", "id", "address"))
    for name in given:
        if narrowed:
            del query[name]
        else:
            query[name] = ends[name]
