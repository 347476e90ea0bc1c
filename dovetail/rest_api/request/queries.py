"""What a client may say in a query string, checked before it travels to the validator.

Parameters that the seed specification calls not operational (sort, fields, omit, callback) are accepted and ignored.
Of a parameter that is given twice the first counts; ``id`` adds up. No HTTP, no sockets.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl

from dovetail.ledger.addresses import is_address, is_prefix
from dovetail.ledger.ids import is_id
from dovetail.ledger.limits import Limits
from dovetail.rest_api.errors import ApiError, Problem
from protos import query_pb2

Resource = query_pb2.ListRequest.Resource

NUMBER_MAX: Final = 2**64 - 1
"""The largest block number or index that there can be."""

_SHOWN_CHARACTERS_MAX: Final = 140
_OTHER_FIELDS_MAX: Final = 100
_DIGITS_MAX: Final = len(str(NUMBER_MAX))

_NAMES_NOTHING: Final = "0" * 128
"""Has the form of an id and is none: no signature is all zeros."""

_is_number = re.compile(r"[0-9]+").fullmatch
_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch


def shown(text: str) -> str:
    """``text`` as an error message may repeat it: quoted and cut."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…")


def number(text: str) -> int | None:
    """The number that ASCII digits name, None for other text; one over ``NUMBER_MAX`` comes back as NUMBER_MAX + 1."""
    if _is_number(text) is None:
        return None
    digits = text.lstrip("0") or "0"
    # int() refuses thousands of digits, and whoever sends them means "very many".
    return min(int(digits), NUMBER_MAX + 1) if len(digits) <= _DIGITS_MAX else NUMBER_MAX + 1


class Query:
    """One decoded query string. ``pairs`` keeps names and values in their order. Raises ApiError 400 for too many."""

    __slots__ = ("pairs",)

    def __init__(self, query_string: bytes, limits: Limits) -> None:
        # Each id may be a parameter of its own.
        fields_max = limits.status_ids_max + _OTHER_FIELDS_MAX
        try:
            self.pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=fields_max)
        except ValueError:
            fields = query_string.count(b"&") + 1
            raise ApiError(
                Problem.BAD_REQUEST, f"the query string holds {fields} parameters, {fields_max} are allowed"
            ) from None

    def first(self, name: str) -> str | None:
        """The first value of ``name``; the empty string when it stands without one; None when it is absent."""
        for key, value in self.pairs:
            if key == name:
                return value
        return None

    def wait_s(self, own_wait_s: int, wait_s_max: int) -> int:
        """Seconds to wait, 0 for not at all: the seed's rules on POST /batches and GET /batch_status.

        ``own_wait_s`` stands for every value that is neither an integer nor false. Raises ApiError 55.
        """
        text = self.first("wait")
        if text is None or text.lower() == "false":
            return 0
        if _is_integer(text) is None:
            return own_wait_s
        seconds = number(text.lstrip("+-")) or 0
        if text.startswith("-") and seconds:
            raise ApiError(Problem.INVALID_WAIT, f"wait is {shown(text)}: a negative number of seconds")
        return min(seconds, wait_s_max)

    def ids(self, ids_max: int) -> list[str] | None:
        """The strings of all ``id`` parameters, each once, in their order; None without the parameter.

        Raises ApiError 66 when there is none in it, or more than ``ids_max``.
        """
        values = [value for key, value in self.pairs if key == "id"]
        if not values:
            return None
        found = [entry for entry in dict.fromkeys(",".join(values).split(",")) if entry]
        if not found:
            raise ApiError(Problem.INVALID_ID_QUERY, "the query parameter id is empty")
        if len(found) > ids_max:
            raise ApiError(
                Problem.INVALID_ID_QUERY, f"the query parameter id holds {len(found)} ids, {ids_max} are allowed"
            )
        return found

    def count(self, limits: Limits) -> int:
        """How many items of a list. Raises ApiError 53."""
        text = self.first("count")
        if text is None:
            return limits.page_items_default
        count = number(text)
        if not count:
            raise ApiError(Problem.INVALID_COUNT, f"count is {shown(text)}, not a positive integer")
        return min(count, limits.page_items_max)


def state_prefix(text: str) -> str:
    """``text``, when it is an address or a prefix of one. Raises ApiError 62."""
    if not is_prefix(text):
        raise ApiError(
            Problem.INVALID_ADDRESS,
            f"{shown(text)} ({len(text)} characters) is not an even number of lower-case hex characters, 0 to 70",
        )
    return text


def head_name(query: Query) -> str:
    """The block that ``head`` names, by id or number; empty for the chain head. Raises ApiError 50."""
    return _name(query.first("head"), is_id, Problem.HEAD_NOT_FOUND, "head names no block by id or number")


def list_request(resource: Resource, query: Query, limits: Limits, address: str = "") -> query_pb2.ListRequest:
    """The question for one page. Raises ApiError 50, 53, 54 or 66 for what can name nothing."""
    names_item = is_address if resource == Resource.STATE else is_id
    request = query_pb2.ListRequest(
        resource=resource,
        head=head_name(query),
        address=address,
        min=_name(query.first("min"), names_item, Problem.INVALID_PAGING, "min names nothing in the list"),
        max=_name(query.first("max"), names_item, Problem.INVALID_PAGING, "max names nothing in the list"),
        count=query.count(limits),
    )
    ids = None if resource == Resource.STATE else query.ids(limits.status_ids_max)
    if ids is not None:
        # No ids at all would ask for the whole list.
        request.ids.extend([entry for entry in ids if is_id(entry)] or [_NAMES_NOTHING])
    return request


def _name(text: str | None, names: Callable[[str], bool], problem: Problem, message: str) -> str:
    """An id, or an index in its shortest form; empty when the parameter is absent."""
    if text is None:
        return ""
    if names(text):
        return text
    index = number(text)
    if index is None or index > NUMBER_MAX:
        raise ApiError(problem, f"{message}: {shown(text)}")
    return str(index)
