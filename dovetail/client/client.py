"""The HTTP client: each method is a request to the REST API (API.md). No keys, no families, no output.

Resources are returned as the API's JSON objects, in which binary values are base64.
"""

import base64
import binascii
import math
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dovetail.common.errors import Refused
from dovetail.common.urls import DEFAULT_URL, check_rest_api, misread, shown_url
from dovetail.ledger.building import SignedBatch, encode_batch_list

_ANSWER_S: Final = 30.0
_STATUS_IDS_IN_URL_MAX: Final = 15
_STATE_NOT_FOUND: Final = 75
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class ApiError(Refused):
    """An error answer. ``status``: the HTTP status; ``code``: the API's code, None if the answer is not the API's."""

    def __init__(self, status: int, code: int | None, title: str, message: str) -> None:
        super().__init__(f"{title}: {message}" + (f" (code {code})" if code is not None else ""))
        self.status = status
        self.code = code
        self.title = title
        self.message = message


def is_not_found(error: Refused) -> bool:
    """Whether the error is code 75: the address holds no leaf."""
    return isinstance(error, ApiError) and error.code == _STATE_NOT_FOUND


class BatchStatus(NamedTuple):
    """``status``: COMMITTED, INVALID, PENDING or UNKNOWN; ``details``: the API's ``details`` of this batch, or {}."""

    id: str
    status: str
    details: Mapping[str, Any]

    @property
    def why(self) -> str:
        """The details in one line; empty without details."""
        parts = [str(self.details.get("reason", ""))]
        family = f"{self.details.get('family_name', '')} {self.details.get('family_version', '')}".strip()
        # A message may begin with the family already.
        if not str(self.details.get("message", "")).startswith(family):
            parts.append(family)
        if "dependency" in self.details:
            parts.append(str(self.details["dependency"]))
        if "message" in self.details:
            parts.append(str(self.details["message"]))
        if self.details.get("transaction_id"):
            parts.append(f"(transaction {self.details['transaction_id']})")
        return " ".join(part.strip() for part in parts if part.strip())


class Page(NamedTuple):
    """One page of a list: its items, the head at which it was read, and its position in the list."""

    items: list[dict[str, Any]]
    head: str
    start_index: int
    total_count: int


class DovetailClient:
    """A client of one REST API. Every method raises ApiError for an error answer, and Refused without an answer."""

    def __init__(self, url: str = DEFAULT_URL, *, transport: httpx.BaseTransport | None = None) -> None:
        """``url``: the API's base URL with its path prefix. ``transport`` replaces the network in tests."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            # The error quotes a part of the URL, which may contain the password.
            reason = f": {error}" if shown_url(url) == url else ""
            raise Refused(f"{shown_url(url)!r} is no URL{reason}") from None
        check_rest_api(url, parsed.scheme, parsed.host)
        self.url = shown_url(url).rstrip("/")
        """The base URL without its password, for messages."""

        self._http = httpx.Client(
            base_url=url,
            transport=transport,
            timeout=_ANSWER_S,
            # Loading the certificate authorities is slow, so they are loaded only for https.
            verify=_trusted() if parsed.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # A proxy from the environment cannot reach this machine's own addresses.
            trust_env=parsed.host not in _LOOPBACK,
        )

    def __enter__(self) -> "DovetailClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def post_batches(self, batches: Sequence[SignedBatch], *, wait_s: float | None = None) -> dict[str, BatchStatus]:
        """Submit the batches, all or nothing, and return the status of each; PENDING without ``wait_s``.

        ``wait_s``: the seconds, rounded up, to wait until every batch is COMMITTED or INVALID.
        """
        status, body = self._request(
            "POST",
            "/batches",
            params=_waiting(wait_s),
            content=encode_batch_list(batches),
            headers={"Content-Type": "application/octet-stream"},
            wait_s=wait_s,
        )
        if "data" in body:
            return _statuses(body)
        word = "COMMITTED" if status == 201 else "PENDING"
        return {batch.id: BatchStatus(batch.id, word, {}) for batch in batches}

    def batch_status(self, ids: Sequence[str], *, wait_s: float | None = None) -> dict[str, BatchStatus]:
        """The status of each id.

        ``wait_s``: the seconds, rounded up, to wait until every batch is COMMITTED or INVALID.
        """
        params: dict[str, Any] = _waiting(wait_s)
        if len(ids) > _STATUS_IDS_IN_URL_MAX:
            _, body = self._request("POST", "/batch_status", params=params, json=list(ids), wait_s=wait_s)
        else:
            _, body = self._request("GET", "/batch_status", params={"id": ",".join(ids), **params}, wait_s=wait_s)
        return _statuses(body)

    def resource(self, kind: str, name: str, *, head: str | None = None) -> Any:
        """``data`` of one resource. ``kind``: blocks, batches, transactions or state; ``name``: its id or address."""
        _, body = self._request("GET", f"/{kind}/{quote(name, safe='')}", params={"head": head} if head else {})
        return _member(body, "data")

    def data(self, path: str) -> dict[str, Any]:
        """``data`` of a path about the node, for example /readyz or /stats/validator."""
        data = _member(self._request("GET", path)[1], "data")
        if not isinstance(data, dict):
            raise _invalid_answer(f"{self.url}{path} gave no object")
        return data

    def metrics(self) -> list[Sample]:
        """The samples of /metrics. Raises ApiError also if the answer is not in Prometheus' text format."""
        response = self._send("GET", "/metrics", _ANSWER_S)
        if not response.is_success:
            raise _api_error(response, _parsed(response), self.url)
        try:
            return [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]
        except (ValueError, LookupError):
            raise _invalid_answer(f"{self.url}/metrics gave no metrics") from None

    def leaf(self, address: str, *, head: str | None = None) -> bytes:
        """The bytes at a full address. Raises ApiError 75 if the address holds no leaf."""
        return decode_base64(self.resource("state", address, head=head))

    def pages(self, kind: str, **params: str | int | None) -> Iterator[Page]:
        """The pages of a list, all read at one head. ``params``: head, count, address, id, min or max (API.md)."""
        query: Any = {name: value for name, value in params.items() if value is not None}
        while True:
            _, body = self._request("GET", f"/{kind}", params=query)
            items, paging = _member(body, "data"), _member(body, "paging")
            if not isinstance(items, list) or not isinstance(paging, dict):
                raise _invalid_answer(f"{self.url}/{kind} gave no list")
            yield Page(
                items, str(body.get("head", "")), int(paging.get("start_index", 0)), int(paging.get("total_count", 0))
            )
            following = paging.get("next")
            if not following or not items:
                return
            # Only the link's query is used, because a proxy may hide the host and path that this client needs.
            query = httpx.URL(following).params

    def items(self, kind: str, **params: str | int | None) -> Iterator[dict[str, Any]]:
        """The items of a list, requested page by page."""
        for page in self.pages(kind, **params):
            yield from page.items

    def _request(
        self, method: str, path: str, *, wait_s: float | None = None, **arguments: Any
    ) -> tuple[int, dict[str, Any]]:
        response = self._send(method, path, _ANSWER_S + (wait_s or 0), **arguments)
        body = _parsed(response)
        if response.is_success and isinstance(body, dict):
            return response.status_code, body
        raise _api_error(response, body, self.url)

    def _send(self, method: str, path: str, timeout_s: float, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, timeout=timeout_s, **arguments)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Refused(_why_not_connected(self.url, error)) from None
        except httpx.TimeoutException:
            raise Refused(f"{self.url} did not answer within {timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise Refused(f"the connection to {self.url} broke: {error or type(error).__name__}") from None


def decode_base64(text: object) -> bytes:
    """The bytes of a binary value in an answer. Raises ApiError if the value is not base64."""
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        raise _invalid_answer(f"{str(text)[:80]!r} is no base64") from None


def _waiting(wait_s: float | None) -> dict[str, int]:
    """The query parameter, in whole seconds: the REST API takes any other value for its longest wait."""
    return {"wait": math.ceil(wait_s)} if wait_s else {}


def _trusted() -> ssl.SSLContext:
    """The trusted certificates: those that the environment names, or the usual authorities."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        named = {name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ}
        raise Refused(f"cannot load the certificates that the environment names, {named}: {error}") from None


def _why_not_connected(url: str, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {url} is not trusted: {cause.verify_message}; if it is the right one, name its file, "
            "or that of the authority that gave it, in the environment: SSL_CERT_FILE=FILE"
        )
    if cause is not None:
        return f"{url} answers, but not with TLS as https needs it: {cause.reason or cause}; is it an http:// address?"
    return f"nothing answers at {url}; is `dovetail up` running?"


def _parsed(response: httpx.Response) -> object:
    """The body as JSON; None if the body is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def _invalid_answer(message: str) -> ApiError:
    return ApiError(200, None, "Invalid Answer", message)


def _member(body: dict[str, Any], name: str) -> Any:
    if name not in body:
        raise _invalid_answer(f"the answer has no {name!r}")
    return body[name]


def _statuses(body: dict[str, Any]) -> dict[str, BatchStatus]:
    data, details = _member(body, "data"), body.get("details", {})
    if not isinstance(data, dict) or not isinstance(details, dict):
        raise _invalid_answer("the batch statuses are no object")
    return {batch_id: BatchStatus(batch_id, str(word), details.get(batch_id, {})) for batch_id, word in data.items()}


def _api_error(response: httpx.Response, body: object, url: str) -> ApiError:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return ApiError(
            response.status_code, None, f"HTTP {response.status_code} {response.reason_phrase}".strip(), misread(url)
        )
    message = str(error.get("message", ""))
    if "Retry-After" in response.headers:
        message += f"; try again in {response.headers['Retry-After']} s"
    code = error.get("code")
    return ApiError(
        response.status_code, code if isinstance(code, int) else None, str(error.get("title", "Error")), message
    )
