"""The API's errors: one exception type, and the table of codes, HTTP statuses and titles (API.md, Errors).

The message of an error is written where the error is raised.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec
from starlette.responses import Response


class Problem(Enum):
    """(code, HTTP status, title). API.md gives the last four no code, so their code is their HTTP status."""

    UNKNOWN = (10, 500, "Unknown Validator Error")
    NOT_READY = (15, 503, "Validator Not Ready")
    TIMED_OUT = (17, 503, "Validator Timed Out")
    DISCONNECTED = (18, 503, "Validator Disconnected")
    INVALID_RESPONSE = (20, 500, "Invalid Validator Response")
    BATCHES_INVALID = (30, 400, "Submitted Batches Invalid")
    QUEUE_FULL = (31, 429, "Unable to Accept Batches")
    NO_BATCHES = (34, 400, "No Batches Submitted")
    NOT_DECODABLE = (35, 400, "Protobuf Not Decodable")
    TOO_LARGE = (36, 413, "Request Too Large")
    NOT_OCTET_STREAM = (42, 400, "Wrong Content Type")
    NOT_JSON = (43, 400, "Wrong Content Type")
    BAD_STATUS_REQUEST = (46, 400, "Bad Status Request")
    HEAD_NOT_FOUND = (50, 404, "Head Not Found")
    INVALID_COUNT = (53, 400, "Invalid Count Query")
    INVALID_PAGING = (54, 400, "Invalid Paging Query")
    INVALID_WAIT = (55, 400, "Invalid Wait Query")
    INVALID_ADDRESS = (62, 400, "Invalid State Address")
    INVALID_ID_QUERY = (66, 400, "Id Query Invalid or Missing")
    BLOCK_NOT_FOUND = (70, 404, "Block Not Found")
    BATCH_NOT_FOUND = (71, 404, "Batch Not Found")
    TRANSACTION_NOT_FOUND = (72, 404, "Transaction Not Found")
    STATE_NOT_FOUND = (75, 404, "State Not Found")
    BAD_REQUEST = (400, 400, "Bad Request")
    PATH_NOT_FOUND = (404, 404, "Not Found")
    METHOD_NOT_ALLOWED = (405, 405, "Method Not Allowed")
    REQUEST_TIMEOUT = (408, 408, "Request Timeout")

    def __init__(self, code: int, status: int, title: str) -> None:
        self.code = code
        self.status = status
        self.title = title


_RETRY_AFTER: Final[Mapping[str, str]] = {"Retry-After": "1"}
_TEMPORARY: Final = (429, 503)
"""The HTTP statuses of errors after which a client may try again."""


class ApiError(Exception):
    """An error answer. ``message`` says what is wrong with this request."""

    def __init__(
        self, problem: Problem, message: str, *, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message
        self.status = problem.status if status is None else status
        self.headers: Mapping[str, str] = {**(_RETRY_AFTER if self.status in _TEMPORARY else {}), **(headers or {})}

    def body(self) -> bytes:
        """The JSON error object."""
        error = {"code": self.problem.code, "title": self.problem.title, "message": self.message}
        return msgspec.json.encode({"error": error})

    def response(self) -> Response:
        return Response(self.body(), self.status, self.headers, "application/json")


def no_chain() -> ApiError:
    """Code 15: the validator has no genesis block yet."""
    return ApiError(Problem.NOT_READY, "the validator has no genesis block yet")


CLIENT_GONE: Final = 499
"""The status in logs and metrics of a request whose client disconnected before its answer began."""


class ClientGone(Exception):
    """The HTTP client closed its connection before its answer was ready, so there is nobody to answer."""
