"""Parameters of a query string, checked before the validator is asked."""

import pytest

from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from tests.dovetail.rest_api.support import error_of, run, running_api

UNKNOWN = "e" * 128


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/blocks?count=0", 400, 53),
        ("/blocks?count=-1", 400, 53),
        ("/blocks?count=", 400, 53),
        ("/blocks?count=%D9%A3", 400, 53),
        ("/blocks?count=%2B3", 400, 53),
        ("/blocks?count=1e3", 400, 53),
        ("/blocks?min=x", 400, 54),
        ("/blocks?max=", 400, 54),
        (f"/blocks?max={2**64}", 400, 54),
        (f"/state?min={UNKNOWN}", 400, 54),
        ("/batches?min=" + "9" * 10_000, 400, 54),
        ("/blocks?head=%00", 404, 50),
        ("/state/1cf1?head=x", 404, 50),
        ("/blocks?id=", 400, 66),
        ("/blocks?id=" + ",".join(map(str, range(1001))), 400, 66),
        ("/state?address=1CF1", 400, 62),
        ("/state?address=1cf", 400, 62),
        ("/state/" + "a" * 72, 400, 62),
        ("/state/xy", 400, 62),
        ("/state/1cf126%0A", 400, 62),
        ("/blocks/" + "A" * 128, 404, 70),
        (f"/blocks/{2**64}", 404, 70),
        ("/blocks/-1", 404, 70),
        ("/batches/7", 404, 71),
        ("/transactions/%FF", 404, 72),
    ],
)
def test_unusable_parameters_are_refused_without_asking_the_validator(path: str, status: int, code: int) -> None:
    async def test() -> None:
        async with running_api() as api:
            assert error_of(await api.http.get(path))[:2] == (status, code)
            assert api.validator.asked.empty()

    run(test())


def test_a_query_of_too_many_parameters_is_400() -> None:
    async def test() -> None:
        async with running_api(config=RestConfig(limits=Limits(status_ids_max=10))) as api:
            for path in ("/healthz", "/batch_status", "/blocks"):
                response = await api.http.get(f"{path}?{'%ff&' * 110}")
                assert error_of(response)[:2] == (400, 400)
                assert "111 parameters, 110 are allowed" in response.text
            assert (await api.http.get(f"/healthz?{'%ff&' * 109}")).status_code == 200

    run(test())
