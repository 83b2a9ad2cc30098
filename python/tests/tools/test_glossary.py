"""docs/glossary.md names files that exist, and each has its term."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def rows() -> list[tuple[str, list[str]]]:
    """Return the terms and their files."""
    found = []
    for line in (ROOT / "docs/glossary.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] != "term" and not cells[0].startswith("---"):
            found.append((cells[0], re.findall(r"`([^`]+)`", cells[2])))
    return found


def paths_of(names: list[str]) -> list[Path]:
    """Return the files of a row: below cpp or python, or in the folder of the one before."""
    paths: list[Path] = []
    for name in names:
        folders = [ROOT / "cpp", ROOT / "python", *(path.parent for path in paths[-1:])]
        paths += [folder / name for folder in folders if (folder / name).is_file()][:1] or [Path(name)]
    return paths


def plain(text: str) -> str:
    """Return a text without what tells a term from an identifier: "operation core" is OperationCore."""
    return re.sub(r"[^a-z]", "", text.lower())


def test_every_term_is_in_its_file() -> None:
    terms = rows()
    assert len(terms) > 40
    missing = []
    for term, names in terms:
        paths = paths_of(names)
        absent = [str(path) for path in paths if not path.is_file()]
        texts = "".join(plain(path.read_text()) for path in paths if path.is_file())
        words = [word for word in term.split(", ") if plain(word) not in texts]
        if not paths or absent or words:
            missing.append((term, absent, words))
    assert not missing
