"""A real ``sshd`` for the time of a test: its own keys, port and files, and a client's configuration to reach it."""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

__all__ = ["Sshd", "run_sshd"]

_PR_SET_CHILD_SUBREAPER = 36


class Sshd:
    """A running server, which all that it starts remains below, also what lost its parent.

    Parameters
    ----------
    process
        The server.
    folder
        Where its keys and configurations are.
    port
        Where it listens, on the addresses that it was started for.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path, port: int) -> None:
        self._process = process
        self._folder = folder
        self.port = port

    @property
    def ssh_command(self) -> str:
        """The client with what it needs to reach the server, for ``--ssh-command``."""
        return f"ssh -F {self._folder / 'ssh_config'}"

    def started(self) -> list[psutil.Process]:
        """Return all that the server has started and that is still there: sessions, and what runs in them."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def session_of(self, process: psutil.Process) -> psutil.Process:
        """Return the server's process for the connection over which this one was started."""
        (session,) = (each for each in process.parents() if each.ppid() == self._process.pid)
        return session

    def wait_until_idle(self) -> None:
        """Wait for the end of all that the server has started, and fail when there is none."""
        deadline = time.monotonic() + 60
        while left := self.started():
            psutil.wait_procs(left, timeout=max(0.0, deadline - time.monotonic()))
            assert time.monotonic() < deadline, f"still there: {[_describe(process) for process in left]}"

    def distrust(self) -> None:
        """Make the client know another key for the server than the one that it has."""
        _make_key(self._folder / "other_key")
        _write_known_hosts(self._folder, "other_key")


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return f"{process.pid} {' '.join(process.cmdline())} ({process.status()})"
    return f"{process.pid} (ended)"


def _find(name: str) -> str:
    # Only root has the second folder on the PATH everywhere.
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: openssh-server)")
    return path


def _make_key(path: Path) -> None:
    command = [_find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)


def _write_known_hosts(folder: Path, key: str) -> None:
    (folder / "known_hosts").write_text(f"test-host {(folder / f'{key}.pub').read_text()}")


def _write_files(folder: Path, aliases: dict[str, str]) -> None:
    for key in ("host_key", "user_key"):
        _make_key(folder / key)
    _write_known_hosts(folder, "host_key")
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\n"
        f"PidFile {folder}/sshd.pid\n"
        "PermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
        "UsePAM no\n"
        "StrictModes no\n"  # a folder for temporary files is everybody's
        "MaxStartups 100\n"
        "LogLevel INFO\n"
    )
    (folder / "aliases").write_text(
        "".join(f"Host {alias}\n    HostName {address}\n" for alias, address in aliases.items())
    )


def _write_client_config(folder: Path, port: int) -> None:
    (folder / "ssh_config").write_text(
        (folder / "aliases").read_text() + "Host *\n"
        f"    Port {port}\n"
        f"    User {getpass.getuser()}\n"
        f"    IdentityFile {folder}/user_key\n"
        "    IdentitiesOnly yes\n"
        "    IdentityAgent none\n"
        "    BatchMode yes\n"
        "    HostKeyAlias test-host\n"
        "    StrictHostKeyChecking yes\n"
        f"    UserKnownHostsFile {folder}/known_hosts\n"
        "    GlobalKnownHostsFile none\n"
        "    LogLevel ERROR\n"
    )


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _adopt_orphans() -> None:
    # In the child, before it becomes the server: kept by exec, not handed down to what it starts.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _start(folder: Path, addresses: list[str]) -> tuple[subprocess.Popen[str], int]:
    """Start a server; somebody may take the port in the meantime, so try again."""
    said = ""
    for _ in range(20):
        port = _free_port(addresses[0])
        listen = [word for address in addresses for word in ("-o", f"ListenAddress={address}:{port}")]
        process = subprocess.Popen(
            [_find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config"), *listen],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_adopt_orphans,
        )
        assert process.stderr is not None
        said, listening = "", 0
        while listening < len(addresses) and (line := process.stderr.readline()):
            said += line
            listening += line.startswith("Server listening on ")
            if line.startswith("error: Bind to port"):
                break
        if listening == len(addresses):
            return process, port
        process.kill()
        process.communicate()
    pytest.fail(f"sshd does not start: {said}")


@contextlib.contextmanager
def run_sshd(folder: Path, addresses: list[str], aliases: dict[str, str]) -> Iterator[Sshd]:
    """Run a server that admits this user, and end it and all that it started; skip the test where there is none.

    Parameters
    ----------
    folder
        An empty folder, whose path has no spaces.
    addresses
        Where it listens, all with one port.
    aliases
        Names that only the client's configuration knows, with the addresses that they stand for.
    """
    _find("sshd")
    if os.getuid() == 0:
        # Where its service has not been started since the machine was: the service makes this empty folder too.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    _write_files(folder, aliases)
    process, port = _start(folder, addresses)
    _write_client_config(folder, port)
    sshd = Sshd(process, folder, port)
    try:
        yield sshd
        sshd.wait_until_idle()
    finally:
        left = sshd.started()
        process.send_signal(signal.SIGTERM)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.communicate(timeout=60)
