from enum import IntEnum

from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.progress_thread import ProgressThread

class BackendType(IntEnum):
    AUTO = 0
    SOCKET = 1

def is_running_with_rrun() -> bool: ...
def is_running_with_slurm() -> bool: ...
def get_rank() -> int: ...
def get_nranks() -> int: ...
def report_abort(reason: str, *, culprit: int | None = None) -> None: ...
def create_ucxx_comm(
    progress_thread: ProgressThread | None = None,
    type: BackendType = BackendType.AUTO,
    options: Options | None = None,
) -> Communicator: ...
