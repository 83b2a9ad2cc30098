"""Where the ranks run. Gathered when the engine starts, so that one rank may ask alone.

rrun -n 2 python examples/spmd_cluster_info.py
"""

from cudf_polars.engine.spmd import SPMDEngine

with SPMDEngine() as engine:
    if engine.rank == 0:
        for i, info in enumerate(engine.gather_cluster_info()):
            print(
                f"rank {i}: hostname={info['hostname']}, pid={info['pid']}, "
                f"CUDA_VISIBLE_DEVICES={info['cuda_visible_devices']}"
            )
