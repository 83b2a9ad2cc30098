"""Shuffles without an engine: any table that speaks the Arrow C interface, partitioned by hash.

Each rank packs its rows, held by Polars, by pyarrow or by pandas, into partitions by ``customer_id``; the
shuffler brings every partition to its owner, and the owner reads it with the library it likes.

rrun -n 2 python examples/shuffle_by_hand.py
"""

import polars as pl
import pyarrow as pa
from _data import sales
from rapidsmpf import bootstrap
from rapidsmpf.communicator import single
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.table import partition_and_pack, unpack_and_concat

PARTITIONS = 8

options = Options(get_environment_variables())
if bootstrap.is_running_with_rrun():
    comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread(), options=options)
else:
    comm = single.new_communicator(options, ProgressThread())
br = BufferResource()

# This rank's rows: every nranks-th one.
rows = pl.read_parquet(sales()).gather_every(comm.nranks, offset=comm.rank)
frames = {"polars": rows, "pyarrow": rows.to_arrow(), "pandas": rows.to_pandas()}

# All ranks run the same shuffles. Each has an id of its own; ids may be used again when a shuffle is over.
for op_id, (library, frame) in enumerate(frames.items()):
    shuffler = Shuffler(comm, op_id, PARTITIONS, br)
    shuffler.insert_chunks(partition_and_pack(frame, ["customer_id"], PARTITIONS, br))
    shuffler.insert_finished(range(PARTITIONS))
    while not shuffler.finished():
        partition = shuffler.wait_any()
        table = unpack_and_concat(shuffler.extract(partition), br)
        received = pl.DataFrame(table)  # or pa.table(table), or anything else that reads Arrow
        assert received.height == pa.table(table).num_rows
        print(
            f"rank {comm.rank} of {comm.nranks}: {library}: partition {partition} has {received.height} rows "
            f"of {received['customer_id'].n_unique()} customers"
        )
    shuffler.shutdown()
