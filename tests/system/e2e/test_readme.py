"""The README's family, run as the README says."""

import re
import sys

from tests.system.e2e.conftest import Networks
from tests.system.e2e.process import ROOT


def test_readme_family_is_written_run_and_used(networks: Networks) -> None:
    network = networks()
    network.up()
    handler, program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    folder = network.home / "newcomer"
    folder.mkdir(parents=True)
    (folder / "notes.py").write_text(handler)
    (folder / "submit.py").write_text(program.replace("http://127.0.0.1:8080", network.rest_url))
    network.environment["PYTHONPATH"] = f"{folder}:{ROOT}"
    network.processor("notes:NotesHandler").wait_logged("ready")
    assert network.run("keygen", str(folder / "author.priv")).code == 0
    ran = network.run_command(f"cd {folder} && {sys.executable} submit.py")
    assert ran.code == 0, ran
    first, second = ran.out.splitlines()
    assert re.fullmatch(r"COMMITTED a1b2c3[0-9a-f]{64}", first)
    assert second == "b'buy apples'"
