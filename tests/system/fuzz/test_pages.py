"""A store with damaged pages reads as before, or is refused: no wrong answer, no hang, no bug.

LMDB may end the process on a damaged page; such ends are counted. ``DOVETAIL_TEST_PAGES``: the number of damages.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dovetail.validator.history.verified import make_store
from tests.system.e2e.process import ROOT

DAMAGES = int(os.environ.get("DOVETAIL_TEST_PAGES", "30"))
SEED = 7
PAGE_BYTES = 4096
SECONDS_A_DAMAGE = 2

Damage = list[tuple[int, str]]


def damages(content: bytes, rng: random.Random) -> Iterator[Damage]:
    """Random damages: a flipped bit, another byte, another number of eight bytes, or a piece of another page."""
    used = [at for at in range(0, len(content), PAGE_BYTES) if any(content[at : at + PAGE_BYTES])]
    while True:
        at = rng.choice(used) + rng.randrange(PAGE_BYTES)
        kind = rng.choice(("bit", "bit", "bit", "byte", "number", "page"))
        if kind == "bit":
            yield [(at, bytes((content[at] ^ 1 << rng.randrange(8),)).hex())]
        elif kind == "byte":
            yield [(at, rng.randbytes(1).hex())]
        elif kind == "number":
            yield [(at - at % 8, rng.choice((bytes(8), b"\xff" * 8, rng.randrange(64).to_bytes(8, "little"))).hex())]
        else:
            other, length = rng.choice(used), rng.randrange(1, PAGE_BYTES)
            yield [(at - at % PAGE_BYTES, content[other : other + length].hex())]


@pytest.mark.timeout(60 + DAMAGES * SECONDS_A_DAMAGE)
def test_damaged_pages_are_refused_or_harmless(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    content = (store / "data.mdb").read_bytes()
    tried = damages(content, random.Random(SEED))
    outcomes: Counter[str] = Counter()
    wrong: list[tuple[str, Damage]] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.system.fuzz.pages", str(store)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for _ in range(DAMAGES):
            damage = next(tried)
            reader.stdin.write(json.dumps(damage) + "\n")
            reader.stdin.flush()
            words = json.loads(reader.stdout.readline())
            outcomes[words.partition("\n")[0]] += 1
            if words.startswith(("wrong", "hung", "bug")):
                wrong.append((words, damage))
    print(dict(outcomes))
    assert not wrong, wrong[:3]
    assert outcomes["found"]
    assert outcomes["sound"]
