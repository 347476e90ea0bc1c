"""The table of all targets, by name."""

from typing import Final

from tests.system.fuzz.families import Families
from tests.system.fuzz.node import Messages
from tests.system.fuzz.rest import Requests
from tests.system.fuzz.stored import Configuration, Genesis, Records, Trie
from tests.system.fuzz.target import Target
from tests.system.fuzz.values import Batches, Cbor, Json, Settings

TARGETS: Final[dict[str, type[Target]]] = {
    target.name: target
    for target in (Messages, Requests, Configuration, Records, Trie, Families, Cbor, Json, Batches, Settings, Genesis)
}
