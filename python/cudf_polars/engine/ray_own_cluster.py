"""The Ray that ``RayEngine()`` starts for itself: for this account, on this machine.

Ray's services and workers listen for each other, by default on all interfaces of the machine. Here they listen on the
loopback interface. What keeps other accounts of the machine out is Ray's token, which Ray 2.60 and newer ask for where
they start by ``ray.init``. The sockets and logs of a session, which Ray lets every account write to, are in a folder
that only this account can enter.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

try:
    import ray
    from ray._private import ray_constants
except ImportError as error:
    raise ImportError("RayEngine needs Ray: pip install ray") from error

__all__ = ["start_ray"]

_log = logging.getLogger(__name__)

_SETTINGS = {
    # How far Ray's workers stand back for other processes: by 15, with which any of those gets 30 times as much. Ranks
    # wait for each other: a moment in which one has no core, because Ray itself has something to do, costs all.
    "RAY_worker_niceness": "0",
}
"""Variables that Ray's processes take from this environment when they start, unless the user has set them."""
_SEVERAL_HOSTS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0, Ray's address of this machine is the loopback interface's, as it is elsewhere than on Linux."""


def start_ray(stack: contextlib.ExitStack, options: Mapping[str, Any]) -> None:
    """Call ``ray.init``, which starts Ray on this machine or connects to a cluster.

    Parameters
    ----------
    stack
        Shuts Ray down.
    options
        Arguments of ``ray.init``.
    """
    with contextlib.ExitStack() as settings:
        settings.enter_context(_environment(_SETTINGS))
        arguments = dict(options)
        if _starts_here(arguments):
            if "_node_ip_address" not in arguments:
                settings.enter_context(_on_loopback())
            if "_temp_dir" not in arguments and "RAY_TMPDIR" not in os.environ:
                arguments["_temp_dir"] = _private_folder(stack)
            _keep_token_private()
        ray.init(**arguments)
    stack.callback(ray.shutdown)


def _starts_here(options: Mapping[str, Any]) -> bool:
    """Whether ``ray.init`` will start Ray, and not connect to one that runs."""
    try:
        from ray._private.services import canonicalize_bootstrap_address

        return canonicalize_bootstrap_address(options.get("address"), options.get("_temp_dir")) is None
    except (ImportError, TypeError, ValueError, ConnectionError):
        return False  # an address that Ray will judge itself


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables, but those that are set, for a moment."""
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Let Ray's services, and this process, listen on the loopback interface while Ray starts."""
    former = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    with _environment({_SEVERAL_HOSTS: "0"}):
        if former is None or _SEVERAL_HOSTS not in os.environ or os.environ[_SEVERAL_HOSTS] != "0":
            yield  # the user wants it otherwise, or this Ray has another way
            return
        # Read from the environment when Ray was imported.
        ray_constants.ENABLE_RAY_CLUSTER = False
        try:
            yield
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = former


def _private_folder(stack: contextlib.ExitStack) -> str:
    """Return a folder for Ray's session, inside of one that no other account can enter."""
    # Not in TMPDIR: names of sockets have at most 107 characters, of which Ray takes 66.
    folder = Path(tempfile.mkdtemp(prefix="riverrun-", dir="/tmp"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return str(folder / "ray")


def _keep_token_private() -> None:
    """Make Ray's token if there is none: Ray would write it with the permissions that the umask leaves."""
    if any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        return
    path = Path.home() / ".ray" / "auth_token"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except FileExistsError:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            _log.warning(
                "other accounts may be able to read %s, with which they can use this account's Ray clusters:"
                " chmod 600 it",
                path,
            )
    except OSError as error:
        _log.info("Ray makes its token itself: %s", error)
