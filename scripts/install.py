"""Installs what a file of requirements asks for, with uv: it loads and unpacks many packages at a time, and pip one.

    python scripts/install.py requirements.txt

uv comes from where pip finds packages, and looks for them there, too. pip does it where uv cannot: where there is none,
where pip is configured for more than is known here, or where uv fails, as in a network that only pip has been told of.
Modules are compiled when they are first imported: most of them never are.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

# What pip may be told, and how uv is told the same; None: of no account to what is installed.
OPTIONS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": None,
    "default-timeout": None,
    "retries": None,
    "cache-dir": None,
    "no-cache-dir": "UV_NO_CACHE",
    "disable-pip-version-check": None,
    "root-user-action": None,
    "no-input": None,
    "no-color": None,
    "progress-bar": None,
    "quiet": None,
}
SECTIONS = ("global", "install", ":env:")
"""Where pip is told, the strongest last."""
PIP = (sys.executable, "-m", "pip")
INSTALL = (*PIP, "install", "-q", "--disable-pip-version-check")


def environment_of_uv(configuration: str) -> dict[str, str] | None:
    """Translate what ``pip config list`` prints to environment variables of uv; None where uv knows no such thing."""
    given: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in configuration.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section not in SECTIONS:
            continue  # of other commands
        if option not in OPTIONS:
            return None
        if (variable := OPTIONS[option]) is not None:
            given[section][variable] = " ".join(ast.literal_eval(value).split())
    told = {variable: value for section in SECTIONS for variable, value in given[section].items()}
    if "UV_FIND_LINKS" in told:
        told["UV_FIND_LINKS"] = told["UV_FIND_LINKS"].replace(" ", ",")
    if "UV_INDEX" in told:
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip takes the best of all indexes
    return told


def install_with_uv(requirements: str) -> bool:
    """Try; whether all is installed."""
    configuration = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    told = environment_of_uv(configuration.stdout) if configuration.returncode == 0 else None
    if told is None or subprocess.run([*INSTALL, "uv"], check=False).returncode != 0:
        return False
    # What the user has told uv goes before what pip is told.
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", f"--python={sys.executable}"]
    return subprocess.run([*uv, "-r", requirements], env=told | os.environ, check=False).returncode == 0


def main() -> int:
    """Run the command line; the exit status is that of pip, if it is needed."""
    if len(sys.argv) != 2:
        print("usage: python scripts/install.py <requirements>", file=sys.stderr)
        return 2
    requirements = sys.argv[1]
    if install_with_uv(requirements):
        return 0
    print("uv cannot install this here: pip does it, which takes longer", file=sys.stderr)
    return subprocess.run([*INSTALL, "-r", requirements], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
