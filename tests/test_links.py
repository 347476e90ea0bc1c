"""Every link in a Markdown file, and every page that code or a message names, exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("deploy", "docs", "dovetail", "families", "processor_sdk", "protos", "tests")
PATHS = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
FILES = sorted(str(path.relative_to(ROOT)) for path in PATHS if path.is_file())
TEXTS = (".md", ".py", ".in", ".proto", ".yaml", ".yml", ".service", ".toml", ".ini")


def _without_code(text: str) -> str:
    return re.sub(r"(?ms)^```.*?^```$", "", text)


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"(?m)^#+ (.*)$", _without_code(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".md")])
def test_every_link_leads_to_a_file_and_its_heading(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(([^):\s]+)\)", _without_code(page.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in _anchors(file), link


def test_every_module_of_the_architecture_page_exists() -> None:
    for module in re.findall(r"`([\w/]+\.py)\b", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")):
        assert any(f"/{name}".endswith(f"/{module.removeprefix('core/')}") for name in FILES), module


def test_every_page_that_a_text_names_exists() -> None:
    for name in FILES:
        if name.endswith(TEXTS):
            text = (ROOT / name).read_text(encoding="utf-8")
            for page in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md", text):
                assert (ROOT / page).is_file(), f"{name} names {page}"
