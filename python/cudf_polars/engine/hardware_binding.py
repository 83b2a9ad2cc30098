"""How a rank is bound to the hardware next to its device."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HardwareBindingPolicy"]


@dataclass(frozen=True)
class HardwareBindingPolicy:
    """Which bindings an engine makes when it starts.

    Under ``rrun`` the launcher has already given each rank its share of the cores. On a machine without a GPU
    an engine that is not under ``rrun`` uses the cores that its process may use, and binds nothing.

    Attributes
    ----------
    skip_under_rrun
        Leave binding to the launcher.
    enabled
        Whether to bind at all.
    enable_once
        Bind once per process, not once per engine.
    raise_on_fail
        Raise when a binding fails, instead of going on without it.
    cpu, memory, network
        What to bind.
    """

    skip_under_rrun: bool = True
    enabled: bool = True
    enable_once: bool = True
    raise_on_fail: bool = False
    cpu: bool = True
    memory: bool = True
    network: bool = False
