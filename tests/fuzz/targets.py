"""The table of all targets, by name."""

from typing import Final

from tests.fuzz.families import Families
from tests.fuzz.node import Messages
from tests.fuzz.rest import Requests
from tests.fuzz.stored import Configuration, Genesis, Records, Trie
from tests.fuzz.target import Target
from tests.fuzz.values import Batches, Cbor, Json, Settings

TARGETS: Final[dict[str, type[Target]]] = {
    target.name: target
    for target in (Messages, Requests, Configuration, Records, Trie, Families, Cbor, Json, Batches, Settings, Genesis)
}
