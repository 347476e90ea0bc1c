"""Writes the generated modules beside the .proto files, from the repository root.

Run by ``tox -e protos`` with the oldest supported generator, so that what is committed loads on every protobuf
release in range. With ``--check`` nothing is kept: the exit code tells whether the committed modules are stale.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> None:
    """Compile every .proto of this folder into ``out``/protos."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "protos").glob("*.proto"))
    arguments = ["protoc", f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}", *sources]
    if protoc.main(arguments) != 0:
        sys.exit("protoc refused the sources above")


def stale_modules() -> list[str]:
    """Names of the generated modules that differ from what the sources give."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {path.name: path.read_bytes() for path in (Path(folder) / "protos").iterdir()}
    committed = {path.name: path.read_bytes() for path in (ROOT / "protos").glob("*_pb2.py*")}
    return sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether the committed modules are stale")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    if stale := stale_modules():
        sys.exit(f"stale, run `python protos/generate.py in the protos environment`: {', '.join(stale)}")
    print("generated modules are up to date")


if __name__ == "__main__":
    main()
