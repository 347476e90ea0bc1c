"""/status/families: its shape, and what it says without a chain or a validator that makes sense."""

from protos.node_pb2 import FamiliesResponse, FamilyStatus, NodeStatusResponse
from tests.dovetail.rest_api.support import Api, Type, error_of, run, running_api

TIME = "2001-02-03T04:05:06.789Z"
HEAD = "f" * 128
TOLD = FamiliesResponse(
    status="OK",
    head_id=HEAD,
    head_num=9,
    restricted=True,
    timestamp=TIME,
    families=[
        FamilyStatus(
            family_name="intkey",
            family_version="1.0",
            permission="PERMITTED",
            until_block=0,
            migration="NONE",
            processors=2,
            pending=[FamilyStatus.Pending(reason="queued", batches=3)],
        ),
        FamilyStatus(
            family_name="intkey",
            family_version="2.0",
            permission="WAITING",
            from_block=12,
            until_block=99,
            migrates=["1cf126"],
            migration="REFUSED",
            migration_message="too much",
            processors=1,
            migrating_processors=1,
        ),
        FamilyStatus(family_name="other", family_version="", permission="NOT_PERMITTED", migration="NONE"),
    ],
)


def tell(api: Api, answer: FamiliesResponse) -> None:
    api.validator.answer(Type.FAMILIES_REQUEST, Type.FAMILIES_RESPONSE, answer)


def test_families_are_shown_with_what_there_is_to_say_of_them() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api, TOLD)
            response = await api.http.get("/status/families?x=1")
            assert response.status_code == 200
            assert response.json() == {
                "data": {
                    "head_num": 9,
                    "restricted": True,
                    "timestamp": TIME,
                    "families": [
                        {
                            "family_name": "intkey",
                            "family_version": "1.0",
                            "permission": "permitted",
                            "until_block": 0,
                            "migrates": [],
                            "migration": "none",
                            "processors": 2,
                            "migrating_processors": 0,
                            "pending": {"queued": 3},
                        },
                        {
                            "family_name": "intkey",
                            "family_version": "2.0",
                            "permission": "waiting",
                            "from_block": 12,
                            "until_block": 99,
                            "migrates": ["1cf126"],
                            "migration": "refused",
                            "migration_message": "too much",
                            "processors": 1,
                            "migrating_processors": 1,
                            "pending": {},
                        },
                        {
                            "family_name": "other",
                            "family_version": "",
                            "permission": "not_permitted",
                            "migrates": [],
                            "migration": "none",
                            "processors": 0,
                            "migrating_processors": 0,
                            "pending": {},
                        },
                    ],
                },
                "head": HEAD,
                "link": "http://node:8080/status/families?x=1",
            }

    run(test())


def test_without_a_chain_there_is_no_head_to_tell_of() -> None:
    async def test() -> None:
        async with running_api() as api:
            tell(api, FamiliesResponse(status="NOT_READY"))
            assert error_of(await api.http.get("/status/families"))[:2] == (503, 15)
            tell(api, FamiliesResponse())
            assert error_of(await api.http.get("/status/families"))[:2] == (500, 20)
            for unset in ("permission", "migration"):
                nonsense = FamiliesResponse.FromString(TOLD.SerializeToString())
                nonsense.families[0].ClearField(unset)
                tell(api, nonsense)
                assert error_of(await api.http.get("/status/families"))[:2] == (500, 20)

    run(test())


def test_warnings_leave_a_node_ready() -> None:
    async def test() -> None:
        async with running_api() as api:
            warned = NodeStatusResponse(status="OK", head_id=HEAD, head_num=9, warnings=["one", "other"])
            api.validator.answer(Type.NODE_STATUS_REQUEST, Type.NODE_STATUS_RESPONSE, warned)
            response = await api.http.get("/readyz")
            assert (response.status_code, response.json()["data"]["warnings"]) == (200, ["one", "other"])

    run(test())
