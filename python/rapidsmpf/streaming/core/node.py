"""The names of older scripts, which call actors nodes."""

from rapidsmpf.streaming.core.actor import define_actor as define_py_node
from rapidsmpf.streaming.core.actor import run_actor_network as run_streaming_pipeline

__all__ = ["define_py_node", "run_streaming_pipeline"]
