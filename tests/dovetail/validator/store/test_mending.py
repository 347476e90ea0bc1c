"""Records with one wrong bit, and unreachable records, are found by their checksums. No wrong record is found."""

import random
from pathlib import Path

import pytest

from dovetail.validator.store.carving import Carver
from dovetail.validator.store.mending import MENDED_BYTES_MAX, mended
from dovetail.validator.store.records import key, opened, sealed
from dovetail.validator.store.salvage import ReadMode, ReadPosition, Salvage, read_position, reset_marker
from tests.dovetail.validator.support import commit, make_batch, open_store

NAME = key(258)


def flipped(content: bytes, bit: int) -> bytes:
    at, within = divmod(bit, 8)
    return content[:at] + bytes((content[at] ^ 1 << within,)) + content[at + 1 :]


@pytest.mark.parametrize("length", [0, 1, 2, 63, 300])
def test_every_single_bit_of_key_content_and_checksum_is_mended(length: int) -> None:
    content = random.Random(length).randbytes(length)
    both = NAME + sealed("batches", NAME, content)
    for bit in range(8 * len(both)):
        damaged = flipped(both, bit)
        found = mended("batches", damaged[: len(NAME)], damaged[len(NAME) :])
        assert found is not None
        assert (found.name, found.content) == (NAME, content)
        assert found.bit


def test_what_is_whole_is_left_alone_and_what_is_more_than_a_bit_is_not_guessed() -> None:
    rng = random.Random(1)
    record = sealed("nodes", NAME, rng.randbytes(500))
    whole = mended("nodes", NAME, record)
    assert whole is not None
    assert (whole.content, whole.bit) == (record[:-4], "")
    for _ in range(200):
        one, other = rng.sample(range(8 * len(record)), 2)
        assert mended("nodes", NAME, flipped(flipped(record, one), other)) is None
    assert mended("blocks", NAME, record) is None
    assert mended("nodes", NAME, b"abc") is None
    assert mended("nodes", NAME, bytes(MENDED_BYTES_MAX + 1)) is None


def test_a_record_is_carved_out_of_whatever_stands_around_it(tmp_path: Path) -> None:
    rng = random.Random(2)
    small, other, large = rng.randbytes(300), rng.randbytes(300), b"begins so" + rng.randbytes(9_000)
    content = bytearray(rng.randbytes(40 * 4096))
    for at, name, kept in ((5 * 4096 + 700, key(7), small), (9 * 4096 + 40, key(7), small), (6 * 4096, key(0), other)):
        placed = b"\x08\x00" + name + sealed("batches", name, kept)
        content[at : at + len(placed)] = placed
    record = sealed("batches", key(8), large)
    content[20 * 4096 + 16 : 20 * 4096 + 16 + len(record)] = record
    (tmp_path / "file").write_bytes(content)
    carver = Carver(tmp_path / "file")
    assert list(carver.records("batches", key(7), b"")) == [small]
    assert list(carver.records("batches", key(7), small[:16])) == [small]
    assert list(carver.records("batches", key(7), b"another")) == []
    assert list(carver.records("transactions", key(7), b"")) == []
    assert list(carver.records("batches", key(0), b"")) == [other]
    assert list(carver.records("batches", key(8), b"begins so")) == [large]
    carver.close()


def test_what_ended_a_process_is_not_read_again_and_the_rest_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for num in range(5):
        commit(store, [make_batch(num)])
    wanted = store.batch(2).raw
    store.close()
    marker = [0, 0, 0]
    reset_marker(marker)
    assert read_position(marker) is None
    at = ReadPosition("batches", ReadMode.BY_KEY, 2)
    salvage = Salvage(tmp_path / "store", marker, frozenset({at}), tmp_path / "read")
    assert salvage.last("batches") == 4
    found = next(salvage.numbered("batches", 2))
    # The record is found by walking the pages of the table.
    assert (found.content.endswith(wanted), found.sound, found.mended) == (True, True, "its place in its table")
    assert next(salvage.numbered("batches", 3)).mended == ""
    assert read_position(marker) == ReadPosition("batches", ReadMode.BY_KEY, 3)
    salvage.close()
    walks = (ReadPosition("batches", ReadMode.FORWARDS, 1), ReadPosition("batches", ReadMode.BACKWARDS, 1))
    salvage = Salvage(tmp_path / "store", marker, frozenset({at, *walks}), tmp_path / "read")
    found = next(salvage.numbered("batches", 2))
    assert (found.content.endswith(wanted), found.mended) == (True, "the way to it")
    assert opened("batches", key(2), sealed("batches", key(2), found.content)) == found.content
    assert {entry.name for entry in salvage.all("batches")} == {key(0), key(4)}
    salvage.close()


@pytest.mark.parametrize("page", [0, 1])
def test_a_file_that_is_taken_for_none_is_read_all_the_same(tmp_path: Path, page: int) -> None:
    """Flip each bit of a first page that can make LMDB refuse the file, in the newer and in the older page."""
    store = open_store(tmp_path)
    for num in range(3):
        commit(store, [make_batch(num)])
    wanted = store.batch(2).raw
    store.close()
    content = (tmp_path / "store" / "data.mdb").read_bytes()
    marker = [0, 0, 0]
    for bit in (*range(8 * 10, 8 * 12), *range(8 * 16, 8 * 24), *range(8 * 40, 8 * 44)):
        (tmp_path / "store" / "data.mdb").write_bytes(flipped(content, page * 4096 * 8 + bit))
        reset_marker(marker)
        salvage = Salvage(tmp_path / "store", marker, frozenset(), tmp_path / "read")
        assert next(salvage.numbered("batches", 2)).content.endswith(wanted)
        salvage.close()


def test_in_a_file_that_is_none_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no database at all" * 1000)
    salvage = Salvage(tmp_path, [0, 0, 0], frozenset(), tmp_path / "read")
    try:
        assert (salvage.last("blocks"), salvage.knows_end) == (-1, False)
    finally:
        salvage.close()
