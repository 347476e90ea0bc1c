"""The OpenAPI document: it is valid, complete, and agrees with the table of routes."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.handlers import health
from dovetail.rest_api.openapi import document as openapi
from dovetail.rest_api.openapi.declarations import examples
from dovetail.rest_api.routes import ENDPOINTS
from tests.conformance.schema_check import check, own_document
from tests.dovetail.rest_api.support import run, running_api

DOCUMENT = own_document()


METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def parameter(item: dict[str, Any]) -> dict[str, Any]:
    named = item.get("$ref", "").rpartition("/")[2]
    return dict(DOCUMENT["components"]["parameters"][named]) if named else item


def errors_of(schema: dict[str, Any], value: object) -> list[str]:
    whole = {**schema, "components": {"schemas": DOCUMENT["components"]["schemas"]}}
    return [error.message for error in jsonschema_rs.validator_for(whole, validate_formats=True).iter_errors(value)]


def test_the_document_is_openapi_3_1() -> None:
    document = {**DOCUMENT, "servers": [{"url": examples.BASE}]}
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_the_paths_and_methods_of_routes_and_document_are_the_same() -> None:
    async def test() -> None:
        async with running_api() as api:
            served = (await api.http.get("/openapi.json")).json()
            assert list(served["paths"]) == [endpoint.path for endpoint in ENDPOINTS]
            for path, item in served["paths"].items():
                allow = (await api.http.options(path.replace("{", "").replace("}", ""))).headers["allow"].split(", ")
                assert sorted(allow) == sorted(method.upper() for method in item), path

    run(test())


def test_every_operation_has_a_summary_a_tag_and_its_path_parameters() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for method, path, operation in operations():
        assert operation["summary"], (method, path)
        assert operation["tags"], (method, path)
        declared = {item["name"] for item in map(parameter, operation["parameters"]) if item["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path)), (method, path)


def test_every_problem_is_documented_with_its_status_and_an_example() -> None:
    found = set()
    answers = [answer for _, _, operation in operations() for answer in operation["responses"].items()]
    answers += [("404", DOCUMENT["components"]["responses"]["NotFound"])]
    answers += [("405", DOCUMENT["components"]["responses"]["MethodNotAllowed"])]
    for status, answer in answers:
        if status >= "400" and "content" in answer:
            for name, example in answer["content"]["application/json"]["examples"].items():
                problem = Problem[name.upper()]
                error = example["value"]["error"]
                assert (error["code"], error["title"]) == (problem.code, problem.title)
                # Code 10 has status 503 if a write of the validator failed.
                assert int(status) == problem.status or (problem, status) == (Problem.UNKNOWN, "503")
                found.add(problem)
    assert found == set(Problem)
    assert set(examples.MESSAGES) == set(Problem)


def test_every_example_matches_its_schema() -> None:
    seen = 0
    for method, path, operation in operations():
        for item in map(parameter, operation["parameters"]):
            for example in item.get("examples", {}).values():
                # A query holds text, but the schema describes the value that the text stands for.
                assert errors_of(item["schema"], example["value"]) == [], (method, path, item["name"])
                seen += 1
        media_types = [*operation.get("requestBody", {}).get("content", {}).values()]
        for answer in operation["responses"].values():
            media_types += answer.get("content", {}).values()
        for media in media_types:
            for value in [example["value"] for example in media.get("examples", {}).values()]:
                assert errors_of(media["schema"], value) == [], (method, path)
                seen += 1
            if "example" in media:
                assert errors_of(media["schema"], media["example"]) == [], (method, path)
    assert seen > 100


def test_every_answer_with_a_body_has_an_example() -> None:
    for method, path, operation in operations():
        for status, answer in operation["responses"].items():
            for media_type, media in answer.get("content", {}).items():
                if path not in ("/openapi.json", "/docs") or status != "200":
                    assert media.get("examples"), (method, path, status, media_type)


@pytest.mark.parametrize("name", ["sort", "fields", "omit", "callback"])
def test_parameters_without_effect_are_marked_as_reserved(name: str) -> None:
    found = DOCUMENT["components"]["parameters"][name]
    assert found["x-reserved"] is True
    assert found["description"].startswith("Reserved")


def test_every_schema_is_used() -> None:
    text = json.dumps(DOCUMENT)
    for name in DOCUMENT["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text, name


def test_the_document_holds_the_configured_limits_and_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(
        body_bytes_max=7001, page_items_default=7002, page_items_max=7003, page_bytes_max=7_000_004, status_ids_max=7005
    )

    async def test() -> None:
        async with running_api(config=RestConfig(limits=limits, timeout_s=7006)) as api:
            document = (await api.http.get("/openapi.json")).json()
            parameters = document["components"]["parameters"]
            for name, numbers in {
                "count": [7002, 7003, 7_000_004],
                "statusIds": [7005],
                "blockIds": [7005],
                "wait": [7006],
            }.items():
                for number in numbers:
                    assert f"{number}" in parameters[name]["description"]
            assert "7001 bytes" in document["paths"]["/batches"]["post"]["requestBody"]["description"]
            asked = document["paths"]["/batch_status"]["post"]["requestBody"]["content"]["application/json"]
            assert asked["schema"]["maxItems"] == 7005
            assert "7003" in (await api.http.get("/docs")).text
            monkeypatch.setattr(openapi, "document", None)
            assert (await api.http.get("/openapi.json")).json() == document
            assert (await api.http.get("/docs")).status_code == 200

    run(test())


def test_every_placeholder_is_replaced() -> None:
    names = "|".join(field.name for field in fields(Limits))
    assert not re.search(rf"\{{({names}|timeout_s)\}}", json.dumps(DOCUMENT))


def test_the_example_of_metrics_is_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "METRICS_TIMEOUT_S", 0.01)

    async def test() -> None:
        async with running_api() as api:
            served = (await api.http.get("/metrics")).text
            examples = DOCUMENT["paths"]["/metrics"]["get"]["responses"]["200"]["content"]["text/plain"]["examples"]
            assert all(example["value"] in served for example in examples.values())

    run(test())


def test_the_checker_refuses_undocumented_answers() -> None:
    head = {"x-request-id": "r", "content-type": "application/json"}
    good = json.dumps({"data": {"a": "UNKNOWN"}, "link": "http://n/batch_status?id=a"}).encode()
    check("GET", "/batch_status?id=a", 200, head, good)
    for method, path, status, headers, body in [
        ("GET", "/batch_status", 200, head, good.replace(b"UNKNOWN", b"LOST")),
        ("GET", "/batch_status", 200, head, good.replace(b'"link"', b'"lnk"')),
        ("GET", "/batch_status", 201, head, good),
        ("GET", "/batch_status", 200, {"content-type": "application/json"}, good),
        ("GET", "/batch_status", 200, {**head, "content-type": "text/plain"}, good),
        ("HEAD", "/batch_status", 200, head, good),
        ("GET", "/batch_statuses", 200, head, good),
        ("PUT", "/batch_status", 200, head, good),
    ]:
        with pytest.raises(AssertionError, match=f"{method} {path}"):
            check(method, path, status, headers, body)
