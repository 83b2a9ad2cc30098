"""Channels spill queued messages: ten times the budget is queued, and resident memory stays near the budget."""

from __future__ import annotations

import json
import subprocess
import sys

BUDGET = 64 << 20

PROGRAM = """
import json, re, sys, threading
from pathlib import Path
from rapidsmpf.config import Options
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.streaming.chunks.packed_data import PackedDataChunk
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.message import Message

BUDGET = int(sys.argv[1])
PIECE = 1 << 20
COUNT = 10 * BUDGET // PIECE


def kib(name):
    return int(re.search(rf"{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])


def make(ctx, number):
    return PackedDataChunk.from_packed_data(PackedData.from_host_bytes(bytes([number % 251]) * PIECE, ctx.br()))


def check(ctx, message):
    number = message.sequence_number
    content = PackedDataChunk.from_message(message).to_packed_data().to_host_bytes()
    return bytes(content) == bytes([number % 251]) * PIECE


@define_actor()
def produce(ctx, out):
    for number in range(COUNT):
        out.send_blocking(Message(number, make(ctx, number)))
    waiting.append(len(out))
    produced.set()


@define_actor()
def consume(ctx, source):
    produced.wait(200)
    for message in source:
        right.append(check(ctx, message))


waiting, right, produced = [], [], threading.Event()
# No budget but that one; device memory of a CPU is a share of it.
options = Options({"memory_limit": str(BUDGET), "num_streaming_threads": "2"})
with Context.from_options(None, options) as ctx:
    check(ctx, Message(0, make(ctx, 0)))  # what is loaded for the first is not the channel's
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    channel = ctx.create_channel(messages=10**6)
    run_actor_network(ctx, actors=[produce(ctx, channel), consume(ctx, channel)])
    print(json.dumps({
        "waiting": waiting[0], "right": sum(right), "count": COUNT, "grown": (kib("VmHWM") - before) << 10,
        "spilled": ctx.br().bytes_spilled,
    }))
"""


def test_ten_times_the_budget_waits_in_a_channel():
    command = [sys.executable, "-c", PROGRAM, str(BUDGET)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["right"] == found["count"] == found["waiting"] == 10 * BUDGET >> 20
    assert found["spilled"] >= 8 * BUDGET
    assert found["grown"] <= 1.25 * BUDGET, found
