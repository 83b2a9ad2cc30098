from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options

def new_cluster(
    nranks: int,
    seed: int = 0,
    *,
    delay_probability: float = 0.0,
    longest_delay: int = 20,
    dying_rank: int | None = None,
    dies_after: int = 0,
    options: Options | None = None,
) -> list[Communicator]: ...
