"""What the records say: rates, and how they compare with memcpy and with each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.shuffle.launch import Record

GB = 1e9
_RATES = ("end_to_end", "exchange", "memcpy")


def rates(record: Record, cores: int) -> Record:
    """Give the rates of a record, in GB/s of all that was inserted, the own share included.

    ``<what>``
        For each core second: of the processor time of all threads of all ranks.
    ``<what>_wall``
        For each core that the ranks had, by the clock; other work on the machine makes it smaller.
    ``<what>_spread``
        The slowest run's time less the fastest's, as a share of the median.
    """
    found: Record = {}
    for what in _RATES:
        if f"{what}_seconds" not in record:
            continue
        size = record["memcpy_bytes" if what == "memcpy" else "bytes"] / GB
        seconds, cpu = record[f"{what}_seconds"], record[f"{what}_cpu_seconds"]
        middle = statistics.median(seconds)
        found[what] = size / max(statistics.median(cpu), 1e-9)
        found[f"{what}_wall"] = size / middle / min(record["ranks"], cores)
        found[f"{what}_spread"] = (max(seconds) - min(seconds)) / middle
    if "memcpy" in found:
        for what in ("end_to_end", "exchange"):
            if what in found:
                found[f"{what}_of_memcpy"] = found[what] / found["memcpy"]
    return found


def small_chunk_efficiency(records: Iterable[Record]) -> list[Record]:
    """Say what part of the rate with the largest chunks is left with the smallest, by everything else."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record["case"] in ("packed", "table", "python") and "rates" in record:
            key = (record["case"], record["ranks"], record["transport"], record["partitions_per_rank"])
            groups.setdefault(key, []).append(record)
    found = []
    for (case, ranks, transport, partitions), group in sorted(groups.items()):
        group.sort(key=lambda record: record["chunk_bytes"])
        if len(group) < 2:
            continue
        entry: Record = {
            "case": case,
            "ranks": ranks,
            "transport": transport,
            "partitions_per_rank": partitions,
        }
        for what in ("end_to_end", "exchange"):
            if what in group[0]["rates"]:
                entry[f"{what}_kept"] = group[0]["rates"][what] / group[-1]["rates"][what]
        found.append(entry)
    return found


def size(count: int) -> str:
    """Write bytes as people do."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {unit}"
    return f"{count} B"


def render(record: Record) -> str:
    """Write a record as one line."""
    case = record["case"]
    head = f"{case} on {record['ranks']}" if "ranks" in record else case
    if "rates" in record:
        found = record["rates"]
        cell = ""
        if "chunk_bytes" in record:
            cell = f" {size(record['chunk_bytes'])} x {record['partitions_per_rank']}"
        parts = [
            f"{what} {found[what]:.2f} ({found[f'{what}_wall']:.2f}) +-{found[f'{what}_spread']:.0%}"
            for what in _RATES
            if what in found
        ]
        transport = f" [{record['transport']}]" if record.get("transport") else ""
        return f"{head}{transport}{cell}: " + ", ".join(parts)
    if case == "latency":
        low, high = record["microseconds_10_percent"], record["microseconds_90_percent"]
        return (
            f"{record['what']} [{record['transport']}]: {record['microseconds_median']:.2f} us, "
            f"most {low:.2f} to {high:.2f}"
        )
    if case == "ucx_perftest":
        return f"UCX's own {record['test']}: {record['microseconds_median']:.2f} us"
    if case == "idle_engine":
        share = max(record["rank_cpu_seconds"]) / record["seconds"]
        waiting = max(record["waiting_for_a_rank_cpu_seconds"]) / record["seconds"]
        return f"{head}: idle {share:.2%} of a core, in a collective {waiting:.2%}"
    if "error" in record:
        return f"{head}: {record['error']}"
    if case in ("skew", "pattern"):
        peak = [f"{bytes_ / (1 << 20):.0f}" for bytes_ in record["peak_resident"]]
        name = record.get("name", "")
        seconds = record["all_seconds"][0]
        return f"{head} {name}: {seconds:.2f} s, peak MiB by rank {', '.join(peak)}"
    return f"{head}: {record}"
