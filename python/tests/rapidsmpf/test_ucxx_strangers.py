"""Who lacks the token of a communicator's root gets nothing from it, even with a UCX of their own and its address."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from support.doors import doors_of, try_as_stranger

SECONDS = 60
"""Guards against hangs only."""

RANK = """
import sys
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.communicator import ucxx
from rapidsmpf.config import Options

address = bytes.fromhex(sys.argv[1]) if len(sys.argv) > 1 else None
comm = ucxx.new_communicator(2, None, address, Options({"log": "NONE"}), None)
if address is None:
    print(ucxx.get_root_ucxx_address(comm).hex(), flush=True)
    sys.stdin.readline()
ucxx.barrier(comm, timeout=30)
assert allgather_bytes(comm, 1, b"%d" % comm.rank, timeout=30) == [b"0", b"1"]
"""
# It speaks UCX, over TCP since others' shared memory is closed to it, and knows our messages, but not the token.
STRANGER = """
os.environ["UCX_TLS"] = "tcp"
import struct, time
import numpy as np
import ucxx._lib.libucxx as lib
from ucxx._lib.arr import Array

become_a_stranger()
worker = lib.UCXWorker(lib.UCXContext(feature_flags=(lib.Feature.TAG, lib.Feature.WAKEUP)))
worker.start_progress_thread()
root = lib.UCXAddress.create_from_buffer(bytes.fromhex(ARGUMENTS["address"]))
endpoint = lib.UCXEndpoint.create_from_worker_address(worker, root, False)
mine = bytes(worker.address.tobytes())
token = bytes(32) if ARGUMENTS["with_token"] else b""
join = b"\\1" + token + struct.pack("<iI", 2, len(mine)) + mine
abort = b"\\7" + struct.pack("<iI", 1, 1) + b"h" + struct.pack("<qI", 1, 1) + b"r"
no_rank = (1 << 20) - 1
sent = 0
for key in (0, (1 << 64) - 1):
    for message, sender in ((join, no_rank), (abort, 1), (abort, no_rank), (b"x", 1), (bytes(1000), 1)):
        tag = (1 << 63 | sender) ^ key
        request = endpoint.tag_send(Array(np.frombuffer(message, "u1").copy()), lib.UCXXTag(tag))
        deadline = time.monotonic() + 10
        while not request.completed and time.monotonic() < deadline:
            time.sleep(0.01)
        sent += request.completed
print(json.dumps(sent), flush=True)
os._exit(0)
"""


class Root:
    """The root of a communicator of two ranks, in a process of its own."""

    def __init__(self, stack: ExitStack) -> None:
        self.process = stack.enter_context(self._start())
        stack.callback(self.process.kill)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RANK, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        """Let the other rank join, and both end."""
        with self._start(self.address) as other:
            for process in (self.process, other):
                _, err = process.communicate("\n", timeout=SECONDS)
                assert process.returncode == 0, err


@pytest.mark.parametrize("with_token", [True, False])
def test_a_ucx_peer_without_the_token_is_not_heard(with_token):
    with ExitStack() as stack:
        root = Root(stack)
        sent = try_as_stranger(STRANGER, {"address": root.address, "with_token": with_token})
        assert sent == 10  # UCX itself takes messages of everybody
        root.finish()


@pytest.mark.parametrize("message", [b"", b"\0", bytes(4096)])
def test_datagrams_to_the_sockets_that_wake_ranks(message):
    with ExitStack() as stack:
        root = Root(stack)
        doors = [door for door in doors_of([root.process.pid]) if door.kind == "abstract"]
        assert doors
        for door in doors:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.sendto(message, "\0" + door.place[1:])
        root.finish()
