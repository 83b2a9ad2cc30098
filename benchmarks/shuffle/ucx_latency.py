"""The latency of an 8-byte message as UCX's own perftest has it, between two processes of this machine."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import time
from pathlib import Path

_PATIENCE = 60.0


def run(count: int) -> dict[str, object] | None:
    """Measure tagged messages of 8 bytes, ``count`` there and back; None where there is no ``ucx_perftest``.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    spec = importlib.util.find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    program = root / "bin" / "ucx_perftest"
    if not program.exists():
        return None
    libraries = os.pathsep.join(filter(None, [str(root / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    server = subprocess.Popen(
        [program, "-p", port], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    command: list[str | Path] = [
        program,
        "127.0.0.1",
        "-p",
        port,
        "-t",
        "tag_lat",
        "-s",
        "8",
        "-n",
        str(count),
        "-f",
    ]
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
            if done.returncode == 0:
                break
            if "refused" not in done.stderr + done.stdout or time.monotonic() > deadline:
                raise RuntimeError(f"ucx_perftest failed:\n{done.stderr}{done.stdout}")
    finally:
        server.terminate()
        server.wait()
    # iterations, then the latency of one way in microseconds: typical, average, overall
    numbers = done.stdout.strip().splitlines()[-1].replace("Final:", "").split()
    return {
        "case": "ucx_perftest",
        "test": "tag_lat",
        "message_bytes": 8,
        "count": count,
        "microseconds_median": float(numbers[1]),
        "microseconds_overall": float(numbers[3]),
    }
