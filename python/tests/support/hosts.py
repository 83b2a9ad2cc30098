"""Two network namespaces joined by a cable: as two hosts, for programs that are started in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

__all__ = ["Host", "two_hosts"]

# What starts in a host has a name for it, and shares neither processes nor memory with the other one.
_ENTER = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'


def _ip(*args: str) -> str:
    return subprocess.run(["ip", *args], check=True, capture_output=True, text=True, timeout=60).stdout


@dataclass(frozen=True)
class Host:
    """A network namespace with one end of the cable, which is called as it is.

    Parameters
    ----------
    name
        Of the namespace, its host name and its network interface.
    address
        An IPv4 address.
    """

    name: str
    address: str

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs ``command`` there; whoever kills its process kills all that it started."""
        unshare = ["unshare", "--pid", "--ipc", "--uts", "--mount-proc", "--kill-child"]
        return ["ip", "netns", "exec", self.name, *unshare, "sh", "-c", _ENTER, self.name, *command]

    def unplug(self) -> None:
        """Take the interface down: what is sent is lost, and nobody is told."""
        _ip("-n", self.name, "link", "set", self.name, "down")

    def wait_until_empty(self) -> None:
        """Wait for the end of all that runs there, and fail when there is none."""
        deadline = time.monotonic() + 60
        while _ip("netns", "pids", self.name).split():
            assert time.monotonic() < deadline, "processes go on"
            time.sleep(0.01)

    def _wait_until_up(self) -> None:
        # The kernel may call it running a second after it is set up, and UCX takes no notice of one that is not.
        deadline = time.monotonic() + 60
        while " state UP " not in (shown := _ip("-n", self.name, "-o", "link", "show", self.name)):
            if time.monotonic() > deadline:
                pytest.skip(f"the interface does not come up: {shown}")
            time.sleep(0.01)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Make the namespaces, and take them away; skip the test where that is not permitted."""
    for needed in ("ip", "unshare"):
        if shutil.which(needed) is None:
            pytest.skip(f"needs {needed}")
    tag = f"rr{os.getpid():x}"
    # Addresses for tests, TEST-NET-2: nobody has them.
    hosts = (Host(f"{tag}a", "198.51.100.1"), Host(f"{tag}b", "198.51.100.2"))
    first, second = hosts
    with contextlib.ExitStack() as stack:
        for host in hosts:
            try:
                _ip("netns", "add", host.name)
            except (subprocess.CalledProcessError, OSError):
                pytest.skip("network namespaces are not permitted here")
            delete = ["ip", "netns", "del", host.name]
            stack.callback(subprocess.run, delete, check=False, capture_output=True, timeout=60)
        ends = [
            first.name,
            "netns",
            first.name,
            "type",
            "veth",
            "peer",
            "name",
            second.name,
            "netns",
            second.name,
        ]
        try:
            _ip("link", "add", *ends)
            subprocess.run(first.command("true"), check=True, capture_output=True, timeout=60)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"not permitted here: {error.stderr}")
        for host in hosts:
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.name)
            _ip("-n", host.name, "link", "set", host.name, "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        for host in hosts:
            host._wait_until_up()
        yield hosts
