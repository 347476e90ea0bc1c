"""The suite's batches, blocks and leaves on the chain. Their names are unique, so the node may have other clients.

The independent client builds and signs batches. Rules do not belong here, and this module must not import the
project's packages.
"""

import secrets
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha512
from typing import Any, Final

from tests.conformance.wire import Answer, Http, Raw, Request
from tests.system.independent import client as ledger
from tests.system.independent import secp256k1
from tests.system.independent.client import Batch, Transaction

OCTETS: Final = ("Content-Type", "application/octet-stream")
JSON: Final = ("Content-Type", "application/json")
UNKNOWN_ID: Final = "e" * 128
COMMIT_WAIT_S: Final = 50

_LEAVES: Final = 5
_SHARED_CHARACTERS: Final = 4
_BLOCKS_LOOKED_AT: Final = 200
_SHORT_HEAD_NUM: Final = 12


class World:
    """A node and what the suite has put on it. ``fill`` replaces ``{names}`` in a row's target."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.run = secrets.token_hex(4)
        self.key = secp256k1.private_key_from(f"conformance {self.run}")
        self.public_key = secp256k1.public_key(self.key)
        self._count = 0
        self._references: dict[tuple[str, str], Reference] = {}

    # Batches

    def name(self) -> str:
        """An intkey name of 14 characters that nobody else uses."""
        self._count += 1
        return f"{self.run}{self._count:06d}"

    def family(self) -> str:
        """A family that no processor serves."""
        return f"conformance_{self.name()}"

    def intkey(self, verb: str, name: str, value: int, *, dependencies: Iterable[str] = ()) -> Transaction:
        return ledger.make_intkey_transaction(self.key, self.public_key, verb, name, value, dependencies=dependencies)

    def orphan(
        self, family: str | None = None, payload: bytes = b"\x00opaque\xff", dependencies: Iterable[str] = ()
    ) -> Transaction:
        """A transaction of a family without processor."""
        return ledger.make_transaction(
            self.key, self.public_key, family or self.family(), "1.0", [], [], payload, dependencies=dependencies
        )

    def batch(self, *transactions: Transaction) -> Batch:
        return ledger.make_batch(self.key, transactions)

    def new(self) -> Batch:
        """A valid batch of one intkey transaction."""
        return self.batch(self.intkey("set", self.name(), 1))

    def bad(self) -> Batch:
        """A batch whose second transaction is invalid."""
        return self.batch(self.intkey("set", self.name(), 1), self.intkey("inc", self.name(), 1))

    def waiting(self) -> Batch:
        """A batch that stays PENDING while a row runs: its dependency never comes, and the node drops it later."""
        return self.batch(self.intkey("set", self.name(), 1, dependencies=[secrets.token_hex(64)]))

    def held(self) -> tuple[Batch, Batch]:
        """Two batches: one waits for a dependency, the other contains that dependency."""
        release = self.new()
        return self.batch(self.intkey("set", self.name(), 2, dependencies=[release.transactions[0].id])), release

    def post(self, *batches: Batch, query: str = "") -> Answer:
        return self.http.ask(Request("POST", f"/batches{query}", (OCTETS,), ledger.make_batch_list(batches)))

    def accept(self, *batches: Batch) -> None:
        answer = self.post(*batches)
        assert answer.status == 202, answer.shown()

    def commit(self, *batches: Batch) -> Answer:
        answer = self.post(*batches, query=f"?wait={COMMIT_WAIT_S}")
        assert answer.status == 201, answer.shown()
        return answer

    def reject(self, *batches: Batch) -> Any:
        """Submit and wait. Returns the body of the 200."""
        answer = self.post(*batches, query=f"?wait={COMMIT_WAIT_S}")
        assert answer.status == 200, answer.shown()
        return answer.json

    def status(self, *ids: str, query: str = "") -> Any:
        """The body of POST /batch_status."""
        content = ("[" + ",".join(f'"{entry}"' for entry in ids) + "]").encode()
        answer = self.http.ask(Request("POST", f"/batch_status{query}", (JSON,), content))
        assert answer.status == 200, answer.shown()
        return answer.json

    def words(self, *batches: Batch, query: str = "") -> list[str]:
        data = self.status(*(batch.id for batch in batches), query=query)["data"]
        return [data[batch.id] for batch in batches]

    def held_answer(self, raw: Raw, release: Batch) -> Answer:
        """The answer to a request that must not be answered before ``release`` commits."""
        # Send a later request on another connection. After its answer, the first request has an answer too, unless the
        # node holds it.
        self.http.get("/")
        assert raw.is_silent(), "answered at once instead of waiting"
        self.commit(release)
        return raw.answer()

    # The batches, blocks and leaves that the suite made

    @cached_property
    def leaves(self) -> dict[str, str]:
        """Five intkey names by address, in address order. All addresses begin with ``prefix``."""
        by_prefix: dict[str, list[str]] = {}
        count = 0
        while True:
            name = f"{self.run}{count:x}"
            found = by_prefix.setdefault(sha512(name.encode()).hexdigest()[-64:][:_SHARED_CHARACTERS], [])
            found.append(name)
            count += 1
            if len(found) == _LEAVES:
                return dict(sorted((ledger.intkey_address(name), name) for name in found))

    @property
    def prefix(self) -> str:
        """The common prefix of the addresses of the suite's leaves.

        Other addresses are unlikely to have this prefix.
        """
        return next(iter(self.leaves))[: len(ledger.INTKEY_NAMESPACE) + _SHARED_CHARACTERS]

    @cached_property
    def posted(self) -> list[list[Batch]]:
        """The suite's batches in lists that are committed one after the other, each in one block or more."""
        names = list(self.leaves.values())
        lists = [[self.batch(self.intkey("set", name, 10))] for name in names[:3]]
        lists.append([self.batch(*(self.intkey("set", name, 10) for name in names[3:]))])
        lists.append([self.new() for _ in range(3)])
        lists.append([self.batch(*(self.intkey("set", self.name(), 1) for _ in range(3)))])
        lists.append([self.batch(self.intkey("inc", names[0], 5))])
        for batches in lists:
            self.commit(*batches)
        return lists

    @cached_property
    def recent(self) -> list[dict[str, Any]]:
        """The newest blocks, newest first, after all of ``posted`` are committed."""
        assert self.posted
        return list(self.http.get(f"/blocks?count={_BLOCKS_LOOKED_AT}").json["data"])

    def block_of(self, batch: Batch) -> dict[str, Any]:
        """The block with one of the suite's batches."""
        return next(block for block in self.recent if batch.id in block["header"]["batch_ids"])

    @cached_property
    def head(self) -> str:
        """The id of the block with the suite's last batch: lists at this head do not change."""
        return str(self.block_of(self.posted[-1][0])["header_signature"])

    @cached_property
    def names(self) -> dict[str, str]:
        """The values of ``{…}`` in a row's target."""
        first, second = self.posted[0][0], self.posted[4][1]
        return {
            "head": self.head,
            "head_num": str(self.block_of(self.posted[-1][0])["header"]["block_num"]),
            "old_head": str(self.block_of(self.posted[-2][0])["header_signature"]),
            "first_head": str(self.block_of(first)["header_signature"]),
            "block": str(self.block_of(second)["header_signature"]),
            "block_num": str(self.block_of(second)["header"]["block_num"]),
            "batch": second.id,
            "other_batch": first.id,
            "transaction": second.transactions[0].id,
            "other_transaction": first.transactions[0].id,
            "address": next(iter(self.leaves)),
            "prefix": self.prefix,
            "absent": self.prefix + "f" * (70 - len(self.prefix)),
            "unknown": UNKNOWN_ID,
            "family": self.family(),
        }

    def fill(self, target: str) -> str:
        return target.format_map(self.names) if "{" in target else target

    @cached_property
    def short_head(self) -> str:
        """An early block. At this head, lists of the chain are short enough to follow from end to end."""
        num = min(int(self.names["head_num"]), _SHORT_HEAD_NUM)
        return str(self.http.get(f"/blocks/{num}").json["data"]["header_signature"])

    def reference(self, path: str, head: str = "") -> "Reference":
        """The first items of a list at ``head``, for comparison with pages. By default, ``head`` is ``self.head``."""
        head = head or self.head
        found = self._references.get((path, head))
        if found is None:
            joint = "&" if "?" in path else "?"
            answer = self.http.get(f"{self.fill(path)}{joint}head={head}&count=40")
            assert answer.status == 200, answer.shown()
            found = self._references[path, head] = Reference(answer.json)
        return found


class Reference:
    """The beginning of a list: the ids or addresses of its items, and the length of the whole list."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.keys = [key_of(item) for item in content["data"]]
        self.total = int(content["paging"]["total_count"])
        assert content["paging"]["start_index"] == 0


def key_of(item: dict[str, Any]) -> str:
    """The id or address of an item of a list."""
    return str(item.get("header_signature") or item["address"])
