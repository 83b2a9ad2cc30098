"""The examples of DaskEngine's documentation that need GPUs, on a machine that has some.

    python -m benchmarks.gpu.dask_cuda_examples --output OUT.json

They are: the engine's own cluster, ``LocalCUDACluster``, workers from the command line with our preload, and
``dask-cuda-worker``. Each has to give the right answer on as many ranks as there are GPUs, of which every rank has one
of its own. What cannot run says why in the record. The exit status is 1 if one that ran was wrong.

Packages beside this one's and its extra ``dask``: the wheels of dask-cuda and, for that, zict and
rapids-dask-dependency (without its dependencies); dask-cuda 26.10 was looked at. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from distributed import Client

from benchmarks.environment import write_report
from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
from cudf_polars.engine.local_workers import visible_gpus

UNBOUND = {"hardware_binding": HardwareBindingPolicy(enabled=False)}
_START_SECONDS = 120


def query(folder: Path) -> pl.LazyFrame:
    """Build the query of the documentation."""
    return (
        pl.scan_parquet(folder / "*.parquet")
        .filter(pl.col("amount") > 100)
        .group_by("customer_id")
        .agg(pl.col("amount").sum())
    )


def write_dataset(folder: Path) -> None:
    """Write the files that it reads."""
    for part in range(8):
        rows = pl.int_range(200_000, eager=True)
        frame = pl.DataFrame({"customer_id": rows % 1000, "amount": rows % 997 + part})
        frame.write_parquet(folder / f"{part}.parquet")


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def check(engine: DaskEngine, folder: Path) -> dict[str, Any]:
    """Run the query; returns what was seen."""
    start = time.perf_counter()
    found = query(folder).collect(engine=engine).sort("customer_id")
    seconds = time.perf_counter() - start
    infos = engine.gather_cluster_info()
    return {
        "seconds": seconds,
        "answer": "equal" if found.equals(query(folder).collect().sort("customer_id")) else "wrong",
        "nranks": engine.nranks,
        "cuda_visible_devices": [info["cuda_visible_devices"] for info in infos],
        "device_memory": [info["device_memory"] for info in infos],
    }


def own_cluster(folder: Path) -> dict[str, Any]:
    """Run ``with DaskEngine() as engine``."""
    with DaskEngine() as engine:
        return check(engine, folder)


def local_cuda_cluster(folder: Path) -> dict[str, Any]:
    """Run on ``LocalCUDACluster()``, which pins its workers itself."""
    from dask_cuda import LocalCUDACluster  # type: ignore[import-not-found,unused-ignore]

    with LocalCUDACluster() as cluster, Client(cluster) as dc:
        before = dc.run(_cores)
        with DaskEngine(dask_client=dc, engine_options=UNBOUND) as engine:
            found = check(engine, folder)
        # The engine has left the binding of dask-cuda as it was.
        return {**found, "binding_kept": dc.run(_cores) == before}


@contextlib.contextmanager
def _from_command_line(folder: Path, *worker: str) -> Iterator[Client]:
    """Start a scheduler and workers; gives a client."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    commands = [
        [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"],
        list(worker),
    ]
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((folder / f"{number}.log").open("w"))
            process = subprocess.Popen(
                [*command, "--scheduler-file", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait, _START_SECONDS)
            stack.callback(process.terminate)
        client = stack.enter_context(Client(scheduler_file=str(file), timeout=_START_SECONDS))
        client.wait_for_workers(len(visible_gpus()), timeout=_START_SECONDS)
        yield client


def nanny_preload(folder: Path) -> dict[str, Any]:
    """Run on workers that ``dask worker --preload-nanny cudf_polars.engine.dask`` has started."""
    with tempfile.TemporaryDirectory() as scratch:
        worker = [
            *(
                sys.executable,
                "-m",
                "dask",
                "worker",
                "--nworkers",
                str(len(visible_gpus())),
                "--nthreads",
                "1",
            ),
            *("--no-dashboard", "--memory-limit", "0", "--local-directory", scratch),
            *("--preload-nanny", "cudf_polars.engine.dask"),
        ]
        with _from_command_line(Path(scratch), *worker) as dc, DaskEngine(dask_client=dc) as engine:
            return check(engine, folder)


def dask_cuda_worker(folder: Path) -> dict[str, Any]:
    """Run on workers that ``dask-cuda-worker`` has started."""
    with tempfile.TemporaryDirectory() as scratch:
        # As the command: where packages come from a folder it has no script.
        worker = [
            *(sys.executable, "-c", "from dask_cuda.cli import worker; worker()"),
            *("--no-dashboard", "--local-directory", scratch),
        ]
        with (
            _from_command_line(Path(scratch), *worker) as dc,
            DaskEngine(dask_client=dc, engine_options=UNBOUND) as engine,
        ):
            return check(engine, folder)


EXAMPLES: dict[str, tuple[Callable[[Path], dict[str, Any]], bool]] = {
    "DaskEngine()": (own_cluster, False),
    "LocalCUDACluster": (local_cuda_cluster, True),
    "dask worker with the preload": (nanny_preload, False),
    "dask-cuda-worker": (dask_cuda_worker, True),
}
"""What runs each example, and whether it needs dask-cuda."""


def examine(name: str, folder: Path) -> dict[str, Any]:
    """Run one example; returns its record."""
    example, needs_dask_cuda = EXAMPLES[name]
    gpus = visible_gpus()
    if not gpus:
        return {"example": name, "skipped": "this machine has no GPU"}
    if needs_dask_cuda and importlib.util.find_spec("dask_cuda") is None:
        return {"example": name, "skipped": "dask-cuda is not installed"}
    try:
        found = example(folder)
    except Exception:  # the others are to run, too
        return {"example": name, "passed": False, "error": traceback.format_exc()}
    first = [str(devices).split(",")[0] for devices in found["cuda_visible_devices"]]
    passed = (
        found["answer"] == "equal"
        and found["nranks"] == len(gpus)
        and len(set(first)) == len(gpus)
        and found.get("binding_kept", True)
    )
    return {"example": name, "passed": passed, **found}


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def main() -> int:
    """Run all; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.dask_cuda_examples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, help="write the record as JSON to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dask-gpus-") as scratch:
        folder = Path(scratch)
        write_dataset(folder)
        records = [examine(name, folder) for name in EXAMPLES]
    for record in records:
        state = record.get("skipped") or ("passed" if record["passed"] else record.get("error", "wrong"))
        print(f"{record['example']}: {state}", flush=True)
    if arguments.output is not None:
        write_report(
            arguments.output,
            gpus=_gpus(),
            examples=records,
        )
    return 1 if any(record.get("passed") is False for record in records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
