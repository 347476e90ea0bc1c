"""The table of all paths, by which the server dispatches and from which the documentation is made.

Its parts are ``openapi.declarations.ledger``, ``openapi.declarations.node``, and the paths about the API itself. The
handlers of these last paths are here, because they need the whole table.
"""

from functools import lru_cache
from typing import Final

import msgspec
from starlette.responses import Response

from dovetail.ledger.version import installed_version
from dovetail.rest_api.answers import pieces
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.openapi import document as openapi
from dovetail.rest_api.openapi import page as docs
from dovetail.rest_api.openapi.declarations import examples
from dovetail.rest_api.openapi.declarations.endpoint import JSON, Answer, get_only
from dovetail.rest_api.openapi.declarations.ledger import LEDGER
from dovetail.rest_api.openapi.declarations.node import NODE
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import Call

VERSION: Final = installed_version()
_NAME: Final = "Dovetail REST API"
_LINKED: Final = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "blocks": "/blocks",
    "batches": "/batches",
    "transactions": "/transactions",
    "state": "/state",
}


async def get_root(call: Call) -> Response:
    """The service's name, its version and links to its main paths."""
    return pieces.json_answer({"data": _root(call.base, VERSION), "link": call.link()})


async def get_openapi(call: Call) -> Response:
    """The OpenAPI 3.1 document, with the URL by which the client reached the API as its server."""
    servers = pieces.whole([{"url": call.base}]).pieces
    text = pieces.Text([_opened_document(call.config), b',"servers":', *servers, b"}"])
    return pieces.text_answer(text, JSON)


async def get_docs(call: Call) -> Response:
    """The OpenAPI document as an HTML page."""
    text = _page(call.config).replace(docs.BASE, docs.escaped(call.base)).encode()
    headers = {"Content-Security-Policy": docs.SECURITY_POLICY, "X-Content-Type-Options": "nosniff"}
    return pieces.text_answer(pieces.Text([text]), "text/html", headers=headers)


def _root(base: str, installed: str) -> pieces.Json:
    linked = {name: links.url(base, path) for name, path in _LINKED.items()}
    return {"name": _NAME, "version": installed, "links": linked}


# The size is 1, because an API has one configuration.
@lru_cache(maxsize=1)
def _opened_document(config: RestConfig) -> bytes:
    """The encoded document without its closing brace, because ``servers`` follows."""
    return msgspec.json.encode(openapi.document(ENDPOINTS, VERSION, config)).removesuffix(b"}")


@lru_cache(maxsize=1)
def _page(config: RestConfig) -> str:
    return docs.page(openapi.document(ENDPOINTS, VERSION, config))


_ABOUT: Final = (
    get_only(
        "/",
        get_root,
        "API",
        "Name, version and where to go on",
        "The links are those that the client can use, whatever proxy stands between.",
        (Answer(200, "What this is.", "Root", {"root": examples.single("/", _root(examples.BASE, "1.0.0"))}),),
    ),
    get_only(
        "/openapi.json",
        get_openapi,
        "API",
        "This documentation for programs",
        "OpenAPI 3.1. Its server is the address that the client used.",
        (Answer(200, "The document.", "Document"),),
    ),
    get_only(
        "/docs",
        get_docs,
        "API",
        "This documentation for people",
        "The same as a page, without scripts and without anything from elsewhere.",
        (Answer(200, "The page.", media_type="text/html"),),
    ),
)

ENDPOINTS: Final = (*_ABOUT, *LEDGER, *NODE)
