"""Collective operations."""

from rapidsmpf.coll.allgather import AllGather, allgather_bytes
from rapidsmpf.coll.allreduce import AllReduce
from rapidsmpf.coll.small import barrier, broadcast_bytes
from rapidsmpf.coll.sparse_alltoall import SparseAlltoall

__all__ = [
    "AllGather",
    "AllReduce",
    "SparseAlltoall",
    "allgather_bytes",
    "barrier",
    "broadcast_bytes",
]
