"""docs/reference/sdk.md: its files written, tested and run as they stand."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.system.e2e.conftest import Shared
from tests.system.e2e.process import ROOT, Process

PAGE = (ROOT / "docs" / "reference" / "sdk.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {text.partition("\n")[0].removeprefix("# "): text for language, text in BLOCKS if language == "python"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_every_block_is_a_file() -> None:
    assert [language for language, _ in BLOCKS] == ["python"] * len(FILES)
    assert all(re.fullmatch(r"\w+\.py", name) for name in FILES)


def test_its_tests_pass(folder: Path, shared: Shared) -> None:
    # Load the plugin even if the project is not installed, as tests/conftest.py does.
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    ran = shared.network.run_command(
        f"cd {folder} && PYTHONPATH={ROOT} {sys.executable} -m pytest -q -p no:cacheprovider -W error"
    )
    assert ran.code == 0, ran.out
    assert f"{PAGE.count('def test_')} passed" in ran.out


def test_the_codec_holds_what_codecs_must(folder: Path, shared: Shared) -> None:
    program = folder / "check.py"
    program.write_text(
        "from books import Lend\nfrom dovetail.ledger.errors import NotDecodable\nfrom text_codec import LendText\n"
        "codec = LendText()\n"
        "for lend in (Lend('Emma'), Lend('Emma', 'ann'), Lend('Emma', 'a\\nb'), Lend('Emma', '')):\n"
        "    assert codec.decode(codec.encode(lend)) == lend, lend\n"
        "for wrong in (b'', b'\\xff', b'\\nann'):\n"
        "    try:\n        print(codec.decode(wrong))\n"
        "    except (NotDecodable, ValueError) as error:\n        print(error)\n"
    )
    ran = shared.network.run_command(f"PYTHONPATH={folder}:{ROOT} {sys.executable} {program}")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "title is '', not one line of 1 to 80 characters", "byte 0 is not UTF-8",
        "title is '', not one line of 1 to 80 characters",
    ]  # fmt: skip


def test_its_page_names_a_message_as_it_is(folder: Path, shared: Shared) -> None:
    quoted = re.search(r"`(the payload \(application/json\) does not fit: .*?)`", PAGE)
    named = re.search(r'hashes the namespace `"books"` to `(\w{6})`', PAGE)
    assert quoted
    assert named
    program = folder / "check.py"
    program.write_text(
        "from books import BooksHandler\nfrom processor_sdk.testing import Ledger\n"
        "ledger = Ledger(BooksHandler(), twice=False)\n"
        "print(ledger.apply(ledger.transaction(b'{}', encoding='application/json')).message)\n"
        "print(*BooksHandler.namespaces)\n"
    )
    ran = shared.network.run_command(f"PYTHONPATH={folder}:{ROOT} {sys.executable} {program}")
    assert ran.out.splitlines() == [quoted[1], named[1]], ran


def test_it_is_served_and_used(folder: Path, shared: Shared) -> None:
    network = shared.network
    key = folder / "author.priv"
    assert network.run("keygen", str(key)).code == 0
    environment = network.environment | {"PYTHONPATH": f"{folder}:{ROOT}"}
    processor = Process("serve.py", [sys.executable, str(folder / "serve.py"), network.validator_url], environment)
    try:
        lend = f"PYTHONPATH={folder}:{ROOT} {sys.executable} {folder}/lend.py {network.rest_url} {key} Emma"
        first = network.run_command(f"{lend} ann")
        assert first.out.splitlines() == ["COMMITTED ", "Book(title='Emma', reader='ann', lent=1)"], first
        second = network.run_command(f"{lend} bob")
        assert second.out.startswith("INVALID invalid_transaction 'Emma' is lent to ann; bob has to wait"), second
        assert processor.terminate() == 0, processor.text
    finally:
        processor.close()
