"""The parameters of a query string, checked before the validator is asked.

Parameters that the seed specification calls not operational (sort, fields, omit, callback) are accepted and ignored.
If a parameter is given twice, the first value counts; several ``id`` parameters add up.
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
"""The largest possible block number or index."""

_SHOWN_CHARACTERS_MAX: Final = 140
_OTHER_FIELDS_MAX: Final = 100
_DIGITS_MAX: Final = len(str(NUMBER_MAX))

_NAMES_NOTHING: Final = "0" * 128
"""A string in the form of an id that is never one, because no signature is all zeros."""

_is_number = re.compile(r"[0-9]+").fullmatch
_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch


def quoted(text: str) -> str:
    """``text`` for an error message: in quotes, and cut if it is long."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…")


def number(text: str) -> int | None:
    """The number in ``text``, at most ``NUMBER_MAX`` + 1; None unless ``text`` consists of ASCII digits."""
    if _is_number(text) is None:
        return None
    digits = text.lstrip("0") or "0"
    # int() refuses thousands of digits.
    return min(int(digits), NUMBER_MAX + 1) if len(digits) <= _DIGITS_MAX else NUMBER_MAX + 1


class Query:
    """A decoded query string. ``pairs`` holds names and values in order. Raises ApiError 400 for too many."""

    __slots__ = ("pairs",)

    def __init__(self, query_string: bytes, limits: Limits) -> None:
        # Each id may come as its own parameter.
        fields_max = limits.status_ids_max + _OTHER_FIELDS_MAX
        try:
            self.pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=fields_max)
        except ValueError:
            fields = query_string.count(b"&") + 1
            raise ApiError(
                Problem.BAD_REQUEST, f"the query string holds {fields} parameters, {fields_max} are allowed"
            ) from None

    def first(self, name: str) -> str | None:
        """The first value of ``name``; empty if the name has no value, None if it is absent."""
        for key, value in self.pairs:
            if key == name:
                return value
        return None

    def wait_s(self, default_wait_s: int, wait_s_max: int) -> int:
        """Seconds to wait; 0: answer at once (seed specification, POST /batches and GET /batch_status).

        ``default_wait_s`` replaces every value that is neither an integer nor ``false``. Raises ApiError 55.
        """
        text = self.first("wait")
        if text is None or text.lower() == "false":
            return 0
        if _is_integer(text) is None:
            return default_wait_s
        seconds = number(text.lstrip("+-")) or 0
        if text.startswith("-") and seconds:
            raise ApiError(Problem.INVALID_WAIT, f"wait is {quoted(text)}: a negative number of seconds")
        return min(seconds, wait_s_max)

    def ids(self, ids_max: int) -> list[str] | None:
        """The distinct strings of all ``id`` parameters, in order; None without the parameter.

        Raises ApiError 66 if there are no strings, or more than ``ids_max``.
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
        """The number of items of a page. Raises ApiError 53."""
        text = self.first("count")
        if text is None:
            return limits.page_items_default
        count = number(text)
        if not count:
            raise ApiError(Problem.INVALID_COUNT, f"count is {quoted(text)}, not a positive integer")
        return min(count, limits.page_items_max)


def state_prefix(text: str) -> str:
    """``text``, if it is an address or a prefix of one. Raises ApiError 62 otherwise."""
    if not is_prefix(text):
        raise ApiError(
            Problem.INVALID_ADDRESS,
            f"{quoted(text)} ({len(text)} characters) is not an even number of lower-case hex characters, 0 to 70",
        )
    return text


def list_request(resource: Resource, query: Query, limits: Limits, address: str = "") -> query_pb2.ListRequest:
    """The request for one page. Raises ApiError 50, 53, 54 or 66 for a parameter that cannot name anything."""
    is_key = is_address if resource == Resource.STATE else is_id
    request = query_pb2.ListRequest(
        resource=resource,
        head=_key_or_index(query, "head", is_id, Problem.HEAD_NOT_FOUND, "head names no block by id or number"),
        address=address,
        min=_key_or_index(query, "min", is_key, Problem.INVALID_PAGING, "min names nothing in the list"),
        max=_key_or_index(query, "max", is_key, Problem.INVALID_PAGING, "max names nothing in the list"),
        count=query.count(limits),
    )
    ids = None if resource == Resource.STATE else query.ids(limits.status_ids_max)
    if ids is not None:
        # A request without ids asks for the whole list.
        request.ids.extend([entry for entry in ids if is_id(entry)] or [_NAMES_NOTHING])
    return request


def _key_or_index(query: Query, name: str, is_key: Callable[[str], bool], problem: Problem, message: str) -> str:
    """An id or address, or an index in its shortest form; empty if the parameter is absent. Raises ``problem``."""
    text = query.first(name)
    if text is None:
        return ""
    if is_key(text):
        return text
    index = number(text)
    if index is None or index > NUMBER_MAX:
        raise ApiError(problem, f"{message}: {quoted(text)}")
    return str(index)
