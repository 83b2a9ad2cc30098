"""What processes listen on, and what another account of this machine gets from it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Door", "doors_of", "family_of", "try_as_stranger"]


@dataclass(frozen=True)
class Door:
    """A socket that takes connections or datagrams from others.

    Attributes
    ----------
    pid
        The process.
    kind
        ``tcp``, ``udp``, ``file`` (a Unix socket with a path) or ``abstract`` (one without).
    place
        Address, path or name.
    port
        Of ``tcp`` and ``udp``, else 0.
    datagrams
        Whether it takes datagrams, and no connections.
    """

    pid: int
    kind: str
    place: str
    port: int = 0
    datagrams: bool = False

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine reaches it; of ``tcp`` and ``udp``."""
        address = ip_address(self.place)
        mapped = getattr(address, "ipv4_mapped", None)
        return (address if mapped is None else mapped).is_loopback

    @property
    def closed_to_others(self) -> bool:
        """Whether file permissions keep other accounts out; of ``file``."""
        path = Path(self.place)
        if not path.stat().st_mode & stat.S_IWOTH:
            return True
        return any(not folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def family_of(pid: int) -> list[int]:
    """Return a process and all that it has started, and these."""
    process = psutil.Process(pid)
    return [pid, *(child.pid for child in process.children(recursive=True))]


def doors_of(pids: Iterable[int]) -> list[Door]:
    """Return the doors of these processes."""
    doors = []
    for pid in pids:
        process = psutil.Process(pid)
        for c in process.net_connections("inet"):
            udp = c.type.name == "SOCK_DGRAM"
            if c.laddr and (c.status == psutil.CONN_LISTEN or (udp and not c.raddr)):
                doors.append(Door(pid, "udp" if udp else "tcp", c.laddr.ip, c.laddr.port, udp))
    # A connected socket has the name of the one that has accepted it: the kernel's table says which accept.
    accepting = {int(line.split()[6]) for line in _unix_sockets() if int(line.split()[3], 16) & 0x10000}
    named = {int(f[6]): (f[7], int(f[4]) == 2) for f in map(str.split, _unix_sockets()) if len(f) > 7}
    for pid in pids:
        for inode in _sockets_of(pid):
            if inode in named and (inode in accepting or named[inode][1]):
                name, datagrams = named[inode]
                kind = "abstract" if name.startswith("@") else "file"
                doors.append(Door(pid, kind, name, 0, datagrams))
    return doors


def _unix_sockets() -> list[str]:
    return Path("/proc/net/unix").read_text().splitlines()[1:]


def _sockets_of(pid: int) -> set[int]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


_STRANGER = """
import json, os, sys
ARGUMENTS = json.loads(sys.argv[1])
import asyncio, socket, ssl
def become_a_stranger():
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
"""


def try_as_stranger(script: str, arguments: Any, *, paths: Sequence[str] = (), seconds: float = 120) -> Any:
    """Run Python as another account (``nobody``; as this one, where that is not allowed), without any secret.

    Parameters
    ----------
    script
        What to run. It imports what it needs, calls ``become_a_stranger()``, finds ``ARGUMENTS`` and prints JSON as its
        last line.
    arguments
        What it may know: ports and process numbers, which every account sees.
    paths
        More folders to import from.
    seconds
        How long it may take.
    """
    done = subprocess.run(
        [sys.executable, "-c", _STRANGER + textwrap.dedent(script), json.dumps(arguments)],
        # None of the variables by which Dask, Ray or rrun might find a key.
        env={"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join([*paths, *sys.path])},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
