"""``intkey``: what it submits and how it shows names and values."""

import json

import pytest

from families.intkey.client import VERSIONS, intkey_address
from tests.dovetail.cli.commands.answers import HEAD, base64_of, leaf_of, page, posted
from tests.dovetail.conftest import FakeApi, Run

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("with_key")]


@pytest.mark.parametrize(
    ("words", "version", "encoding", "value"),
    [
        ((), "1.0", "cbor", 2**32 - 1),
        (("--encoding", "cbor"), "1.0", "cbor", 5),
        (("--encoding", "json"), "1.0", "json", 5),
        (("--family-version", "2.0"), "2.0", "json", 2**64 - 1),
        (("--family-version", "2.0", "--encoding", "cbor"), "2.0", "cbor", 2**32),
    ],
)
def test_a_payload_is_encoded_as_asked(
    run: Run, api: FakeApi, words: tuple[str, ...], version: str, encoding: str, value: int
) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    assert run("intkey", "inc", "apples", str(value), *words).code == 0
    _, transaction = posted(api)
    assert transaction.header.family_version == version
    assert transaction.header.payload_encoding == f"application/{encoding}"
    codec = VERSIONS[version].encodings[transaction.header.payload_encoding]
    assert codec.decode(transaction.payload) == VERSIONS[version].payload("inc", "apples", value)


def test_intkey_show(run: Run, api: FakeApi) -> None:
    leaf = {"data": base64_of(b"\xa2\x61a\x01\x66apples\x05"), "head": HEAD, "link": ""}
    api.answers[f"GET /state/{intkey_address('apples')}"] = (200, leaf)
    assert run("intkey", "show", "apples") == (0, "apples: 5\n", "")
    assert json.loads(run("intkey", "show", "apples", "--json").out) == {"name": "apples", "value": 5}


def test_intkey_show_of_no_name(run: Run, api: FakeApi) -> None:
    api.refuse(f"GET /state/{intkey_address('pears')}", 404, 75, "State Not Found", "no leaf")
    assert run("intkey", "show", "pears") == (1, "", "dovetail: intkey has no name 'pears'\n")
    api.refuse(f"GET /state/{intkey_address('pears')}", 503, 15, "Validator Not Ready", "no genesis")
    assert run("intkey", "show", "pears").err == "dovetail: Validator Not Ready: no genesis (code 15)\n"


def test_intkey_list_follows_pages(run: Run, api: FakeApi) -> None:
    first = [leaf_of("1cf126" + "0" * 64, b"\xa1\x61a\x01")]
    second = [leaf_of("1cf126" + "1" * 64, b"\xa1\x61b\x02")]
    api.answers["GET /state?address=1cf126&count=1000"] = page(first, 0, 2, f"{api.url}/state?address=1cf126&min=1")
    api.answers["GET /state?address=1cf126&min=1"] = page(second, 1, 2)
    done = run("intkey", "list", "--json")
    assert json.loads(done.out) == [{"name": "a", "value": 1}, {"name": "b", "value": 2}]
    assert [line.split() for line in run("intkey", "list").out.splitlines()] == [
        ["NAME", "VALUE"],
        ["a", "1"],
        ["b", "2"],
    ]


def test_a_damaged_leaf_is_told(run: Run, api: FakeApi) -> None:
    api.answers["GET /state"] = page([leaf_of("1cf126" + "0" * 64, b"\xff")])
    done = run("intkey", "list")
    assert done.code == 1
    assert done.err.startswith("dovetail: a leaf of intkey is damaged: ")
