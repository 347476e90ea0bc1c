"""``dovetail store repair`` if one of a file's two first pages does not lead to the newest commit."""

import random
import struct
from pathlib import Path

import pytest

from dovetail.node.genesis import STORE_NAME
from tests.dovetail.cli.commands.stores import BLOCKS, head_of, words
from tests.dovetail.conftest import Run
from tests.dovetail.validator.history.verified import verify

PAGE_BYTES = 4096
TABLES_FLAGS_AT, TABLES_AT, COMMIT_AT = 92, 128, 144


pytestmark = pytest.mark.usefixtures("near")


class FirstPages:
    """Numbers in the two first pages of a store's file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        commits = [self.get(page, COMMIT_AT) for page in range(2)]
        self.newer = commits.index(max(commits))
        self.older = 1 - self.newer

    def get(self, page: int, at: int) -> int:
        number: int = struct.unpack_from("=Q", self._file.read_bytes(), page * PAGE_BYTES + at)[0]
        return number

    def put(self, page: int, at: int, number: int) -> None:
        self.overwrite(page * PAGE_BYTES + at, struct.pack("=Q", number))

    def overwrite(self, at: int, content: bytes) -> None:
        with self._file.open("r+b") as file:
            file.seek(at)
            file.write(content)


def repaired(data: Path, run: Run, head: tuple[str, str], *options: str) -> str:
    """The output of a repair that keeps the newest block."""
    done = run(*words(data, "repair", *options))
    assert done.code == 0, done.err
    assert head_of(data / STORE_NAME) == head
    assert verify(data / STORE_NAME).kept == []
    return done.out


@pytest.mark.parametrize("damage", ["the newer says an old commit", "the older says a later one", "both lead to one"])
def test_first_pages_that_hide_the_newest_commit_are_refused_and_its_block_is_found(
    data: Path, run: Run, damage: str
) -> None:
    """A validator would continue from the commit before, and overwrite a block that clients know."""
    file = data / STORE_NAME / "data.mdb"
    head, pages = head_of(data / STORE_NAME), FirstPages(file)
    if damage == "the newer says an old commit":
        pages.put(pages.newer, COMMIT_AT, 1)
    elif damage == "the older says a later one":
        pages.put(pages.older, COMMIT_AT, pages.get(pages.older, COMMIT_AT) | 1 << 40)
    else:
        pages.put(pages.newer, TABLES_AT, pages.get(pages.older, TABLES_AT))
    for command in (words(data, "check"), ("chain", "verify", "--data-dir", str(data))):
        done = run(*command)
        assert (done.code, done.out) == (1, ""), command
        assert f"{file} has a damaged first page: one is of commit " in done.err, command
        assert "`dovetail store repair` saves" in done.err, command
    said = repaired(data, run, head)
    assert "no damage" not in said
    assert "let go: what the newest write held beside the blocks" in said


def test_a_damaged_table_of_tables_is_told_with_its_repair_and_the_newest_block_is_found(data: Path, run: Run) -> None:
    """A page number with a wrong bit may lead to the table of the commit before."""
    file = data / STORE_NAME / "data.mdb"
    head, pages = head_of(data / STORE_NAME), FirstPages(file)
    start = pages.get(pages.newer, TABLES_AT) * PAGE_BYTES
    page = file.read_bytes()[start : start + PAGE_BYTES]
    pages.overwrite(start, page.replace(b"superseded", b"qupersedee"))
    done = run(*words(data, "check"))
    assert (done.code, "`dovetail store repair`" in done.err) == (1, True)
    repaired(data, run, head)


def test_a_first_page_that_leads_to_no_table_by_its_flags_is_mended(data: Path, run: Run) -> None:
    head, pages = head_of(data / STORE_NAME), FirstPages(data / STORE_NAME / "data.mdb")
    pages.overwrite(pages.newer * PAGE_BYTES + TABLES_FLAGS_AT, b"\x08")
    repaired(data, run, head)


def test_a_compacted_file_begins_with_an_empty_first_page_which_is_no_damage(data: Path, run: Run) -> None:
    """If the other first page is overwritten, repair finds blocks by scanning.

    People decide whether blocks are missing.
    """
    head = head_of(data / STORE_NAME)
    assert run(*words(data, "compact")).code == 0
    compacted = (data / STORE_NAME / "data.mdb").read_bytes()
    assert "no damage was found" in repaired(data, run, head)
    (data / STORE_NAME / "data.mdb").write_bytes(compacted)
    FirstPages(data / STORE_NAME / "data.mdb").overwrite(PAGE_BYTES + 100, random.Random(1).randbytes(200))
    done = run(*words(data, "repair"))
    assert done.code == 1
    assert f"block {BLOCKS}: it is unknown whether there was one" in done.err
    assert f"with --truncate-to {BLOCKS - 1}" in done.err
    repaired(data, run, head, "--truncate-to", str(BLOCKS - 1))


def test_a_first_page_from_which_one_bit_leads_to_older_tables_loses_no_block(data: Path, run: Run) -> None:
    """In a page of zeros, one flipped bit leads to older tables if their page number is a power of two."""
    store = data / STORE_NAME
    head = head_of(store)
    pages = FirstPages(store / "data.mdb")
    pages.put(pages.newer, TABLES_AT, pages.get(pages.older, TABLES_AT) ^ 1 << 40)
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert "mended: one of the two first pages" in done.out
    assert head_of(store) == head
