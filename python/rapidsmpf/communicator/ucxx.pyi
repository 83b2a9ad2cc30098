from typing import Any

from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.progress_thread import ProgressThread

# The ucxx package has no type information: its worker is ucxx._lib.libucxx.UCXWorker, its address UCXAddress.
def new_communicator(
    nranks: int,
    ucx_worker: Any | None,
    root_ucxx_address: Any | bytes | None,
    options: Options,
    progress_thread: ProgressThread | None = None,
) -> Communicator: ...
def get_root_ucxx_address(comm: Communicator) -> bytes: ...
def barrier(comm: Communicator, *, timeout: float | None = None) -> None: ...
