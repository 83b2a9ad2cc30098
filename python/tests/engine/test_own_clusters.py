"""What the workers of an engine's own cluster are given, when the script itself has imported Polars before."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from support.leftovers import wait_for_end

SECONDS = 300
"""Guards against hangs only."""

DASK = """
    import json
    import os

    import polars as pl

    from cudf_polars.engine.dask import DaskEngine


    def look():
        return pl.thread_pool_size(), "MALLOC_TRIM_THRESHOLD_" in os.environ


    if __name__ == "__main__":
        before = dict(os.environ)
        with DaskEngine(n_workers=2) as engine:
            changed = before != dict(os.environ)
            found = list(engine._workers._client.run(look).values())
        print(json.dumps({"changed": changed, "cores": len(os.sched_getaffinity(0)), "workers": found}))
"""

STAY = """
    import sys

    from cudf_polars.engine.dask import DaskEngine

    with DaskEngine(n_workers=2) as engine:
        print(*(info.pid for info in engine.gather_cluster_info()), flush=True)
        sys.stdin.read()
"""

RAY = """
    import json
    import os

    from cudf_polars.engine.ray import RayEngine


    with RayEngine(num_ranks=2, ray_init_options={"include_dashboard": False, "log_to_driver": False}) as engine:
        pids = [info.pid for info in engine.gather_cluster_info()]
        cores = [sorted(os.sched_getaffinity(pid)) for pid in pids]
        niceness = [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids]
        changed = "RAY_worker_niceness" in os.environ
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    print(json.dumps({"cores": cores, "niceness": niceness, "mine": mine, "changed": changed}))
"""


def run_script(text, folder):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_dask_workers_have_as_many_threads_of_polars_as_cores(tmp_path, monkeypatch):
    # Clusters of other tests in this process have set variables that would count as the user's.
    for name in ("POLARS_MAX_THREADS", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    found = run_script(DASK, tmp_path)
    assert not found["changed"]
    assert len(found["workers"]) == 2
    for threads, trims in found["workers"]:
        assert threads == max(1, found["cores"] // 2)
        assert not trims


def test_dask_workers_end_with_a_client_that_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STAY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        workers = [int(pid) for pid in client.stdout.readline().split()]
        assert len(workers) == 2
        assert list(tmp_path.glob("riverrun-dask-*"))
        client.kill()
        client.wait(SECONDS)
    for pid in workers:
        wait_for_end(pid)
    assert not list(tmp_path.glob("riverrun-dask-*"))


def test_ray_actors_have_cores_of_their_own_and_stand_back_for_nobody(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_worker_niceness", raising=False)
    found = run_script(RAY, tmp_path)
    first, second = map(set, found["cores"])
    assert not first & second or first == second == {min(first)}  # a machine of one core
    assert found["niceness"] == [found["mine"]] * 2
    assert not found["changed"]
