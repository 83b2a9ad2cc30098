"""Prints what pyproject.toml asks for: to build without isolation, to run, and for the named extras.

python scripts/requirements.py test > requirements.txt
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Print one requirement a line."""
    with (Path(__file__).resolve().parents[1] / "pyproject.toml").open("rb") as file:
        config = tomllib.load(file)
    project = config["project"]
    requirements = [*config["build-system"]["requires"], *project["dependencies"]]
    for extra in sys.argv[1:]:
        requirements += project["optional-dependencies"][extra]
    print("\n".join(dict.fromkeys(requirements)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
