"""/status/families: the shape of its answer, also before genesis and with invalid answers of the validator."""

from protos.node_pb2 import FamiliesResponse, FamilyStatus
from tests.dovetail.rest_api.support import Api, Type, error_of, run, running_api

TIME = "2001-02-03T04:05:06.789Z"
HEAD = "f" * 128
FAMILIES = FamiliesResponse(
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


def set_families(api: Api, answer: FamiliesResponse) -> None:
    api.validator.answer(Type.FAMILIES_REQUEST, Type.FAMILIES_RESPONSE, answer)


def test_each_family_has_its_members() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_families(api, FAMILIES)
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


def test_families_before_genesis_are_15() -> None:
    async def test() -> None:
        async with running_api() as api:
            set_families(api, FamiliesResponse(status="NOT_READY"))
            assert error_of(await api.http.get("/status/families"))[:2] == (503, 15)
            set_families(api, FamiliesResponse())
            assert error_of(await api.http.get("/status/families"))[:2] == (500, 20)
            for unset in ("permission", "migration"):
                nonsense = FamiliesResponse.FromString(FAMILIES.SerializeToString())
                nonsense.families[0].ClearField(unset)
                set_families(api, nonsense)
                assert error_of(await api.http.get("/status/families"))[:2] == (500, 20)

    run(test())
