"""Half a minute of the soak: nothing is lost, and the chain is sound."""

import json

from typer.testing import CliRunner

from tests.system.soak.__main__ import app


def test_everything_at_once() -> None:
    words = ["--minutes", "0.5", "--rate", "20", "--kill-every", "7", "--upgrade-every", "5", "--json"]
    ran = CliRunner().invoke(app, words)
    report = json.loads(ran.stdout)
    assert report["wrong"] == []
    assert report["verified"]["sound"]
    assert report["batches"] > 0
    assert report["events"]["upgrade"] > 0
