"""The metrics of the REST API's process."""

from protos.node_pb2 import MetricsResponse
from tests.dovetail.rest_api.support import ListResponse, Type, run, running_api, samples


def test_requests_are_counted_by_route_without_labels_from_clients() -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(Type.LIST_REQUEST, Type.LIST_RESPONSE, ListResponse(status="OK", head_id="f" * 128))
            api.validator.answer(Type.METRICS_REQUEST, Type.METRICS_RESPONSE, MetricsResponse())
            for method, path in [
                ("GET", "/blocks/secret"),
                ("HEAD", "/blocks/secret2"),
                ("GET", "/blocks?count=1"),
                ("GET", "/secret"),
                ("GET", "/secret/3"),
                ("SECRET", "/blocks"),
                ("SECRET2", "/secret"),
                ("OPTIONS", "/blocks"),
            ]:
                await api.http.request(method, path)
            found = samples(await api.http.get("/metrics"))
            counted = {
                labels: value for (name, labels), value in found.items() if name == "dovetail_rest_requests_total"
            }
            assert counted == {
                ("GET", "/blocks/{block_id}", "404"): 1,
                ("HEAD", "/blocks/{block_id}", "404"): 1,
                ("GET", "/blocks", "200"): 1,
                ("GET", "", "404"): 2,
                ("other", "/blocks", "405"): 1,
                ("other", "", "404"): 1,
                ("OPTIONS", "/blocks", "204"): 1,
            }
            assert found["dovetail_rest_request_seconds_count", ("GET", "/blocks")] == 1
            assert not any("secret" in value.lower() for _, labels in found for value in labels)

    run(test())
