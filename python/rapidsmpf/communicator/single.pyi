from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.progress_thread import ProgressThread

def new_communicator(options: Options, progress_thread: ProgressThread | None = None) -> Communicator: ...
