"""What RMM draws on in a process with a GPU: the resource of ``memory_resource_config``, while a rank uses it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from rapidsmpf.given_options import unknown_option

__all__ = ["build_resource", "check_resource", "check_resource_config", "rmm_resource"]

_INSTALL = "pip install 'rmm-cu13==26.10.*'"
_FIELDS = ("qualname", "options")


def check_resource_config(name: str, config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a configuration of a resource if it is written as one is; nothing is imported.

    Parameters
    ----------
    name
        Of the option.
    config
        ``qualname``, the dotted name of a class, and ``options``, its keyword arguments. A dict with a ``qualname``
        among these is the configuration of another resource.
    where
        Where it was given, for errors.

    Raises
    ------
    TypeError
        If a key is unknown, or a value has the wrong type.
    ValueError
        If ``qualname`` is missing, or no dotted name.
    """
    for key in config:
        if key not in _FIELDS:
            raise unknown_option(str(key), f"in {name}, {where}", _FIELDS)
    if "qualname" not in config:
        raise ValueError(
            f"option {name} needs 'qualname', the dotted name of a class such as rmm.mr.CudaAsyncMemoryResource"
            f" ({where})"
        )
    qualname, options = config["qualname"], config.get("options")
    if not isinstance(qualname, str):
        raise TypeError(f"option {name}: qualname must be str, not {type(qualname).__name__} ({where})")
    if "." not in qualname or not all(part.isidentifier() for part in qualname.split(".")):
        raise ValueError(f"option {name}: {qualname!r} is not the dotted name of a class ({where})")
    if options is None:
        return {"qualname": qualname, "options": {}}
    if not isinstance(options, Mapping):
        raise TypeError(f"option {name}: options must be dict, not {type(options).__name__} ({where})")
    if not all(isinstance(key, str) for key in options):
        raise TypeError(f"option {name}: the keys of options must be str ({where})")
    nested = {
        key: check_resource_config(name, value, where) if _is_config(value) else value
        for key, value in options.items()
    }
    return {"qualname": qualname, "options": nested}


def build_resource(config: Mapping[str, Any]) -> Any:
    """Make the resource that a configuration describes, and first those that it stands on.

    Raises
    ------
    ImportError
        If the package ``rmm`` is not installed.
    TypeError
        If the class takes other arguments, or makes something else than a resource of RMM.
    ValueError
        If ``qualname`` names no class that can be imported, or the class refuses a value.
    RuntimeError
        If the resource cannot be made.
    """
    resource = _build(config)
    if not isinstance(resource, _rmm().DeviceMemoryResource):
        raise TypeError(
            f"option memory_resource_config: {config['qualname']} makes no rmm.mr.DeviceMemoryResource, but"
            f" {type(resource).__name__}"
        )
    return resource


class _Current:
    """What was made current in this process, and how many use it."""

    def __init__(self) -> None:
        # The garbage collector may let go of a user while another one comes.
        self.lock = threading.RLock()
        self.users = 0
        self.config: Mapping[str, Any] | object | None = None
        self.resource: Any = None
        self.former: Any = None

    def open(self, config: Mapping[str, Any] | object | None) -> None:
        with self.lock:
            if self.users == 0:
                self._make_current(config)
            elif config is not None and config != self.config:
                told = "RMM's own" if self.config is None else _name_of(self.config)
                raise RuntimeError(
                    f"option memory_resource_config: RMM has one resource in a process, which is {told} as long as"
                    " other queries or engines of this process have the GPU. Make the engine with this option first, or"
                    " shut the others down before."
                )
            self.users += 1

    def close(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.resource is not None:
                _rmm().set_current_device_resource(self.former)
                self.config = self.resource = self.former = None

    def _make_current(self, config: Mapping[str, Any] | object | None) -> None:
        if config is None:
            return
        mr = _rmm()
        resource = build_resource(config) if isinstance(config, Mapping) else config
        former = mr.get_current_device_resource()
        mr.set_current_device_resource(resource)
        self.config, self.resource, self.former = config, resource, former


_current = _Current()


def rmm_resource(config: Mapping[str, Any] | object | None) -> AbstractContextManager[None]:
    """Have RMM draw on a resource in this block, in which this process's GPU is used.

    All who use the GPU enter it: RMM has one current resource in a process, which the first of those who are in such a
    block at the same time chooses; when the last leaves, the former one is back. A block that is not left, as at the
    end of the process, changes nothing.

    Parameters
    ----------
    config
        Describes the resource, or is one; None: what there is.

    Raises
    ------
    RuntimeError
        If others use the GPU meanwhile, with another resource.
    """
    return _Use(config)


class _Use:
    """A block in which the GPU is used. No generator, which Python would end at the end of the process."""

    def __init__(self, config: Mapping[str, Any] | object | None) -> None:
        self._config = config

    def __enter__(self) -> None:
        _current.open(self._config)

    def __exit__(self, *_: object) -> None:
        _current.close()


def check_resource(name: str, resource: object) -> object:
    """Return what a parameter was given for a resource of RMM, if it is one.

    Raises
    ------
    ImportError
        Without the package rmm.
    TypeError
        If it is none.
    """
    base = _rmm().DeviceMemoryResource
    if not isinstance(resource, base):
        raise TypeError(
            f"{name} must be an rmm.mr.DeviceMemoryResource or None, not {type(resource).__name__}"
        )
    return resource


def _name_of(config: Mapping[str, Any] | object) -> str:
    return str(config["qualname"]) if isinstance(config, Mapping) else f"the given {type(config).__name__}"


def _is_config(value: object) -> bool:
    return isinstance(value, Mapping) and "qualname" in value


def _rmm() -> Any:
    try:
        return importlib.import_module("rmm.mr")
    except ImportError as error:
        raise ImportError(f"option memory_resource_config needs the package rmm: {_INSTALL}") from error


def _build(config: Mapping[str, Any]) -> Any:
    _rmm()
    qualname = config["qualname"]
    options = {
        name: _build(value) if _is_config(value) else value
        for name, value in (config.get("options") or {}).items()
    }
    kind = _class_of(qualname)
    said = f"option memory_resource_config: {qualname} cannot be made"
    try:
        return kind(**options)
    except TypeError as error:
        raise TypeError(f"{said}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{said}: {error}") from error
    except Exception as error:
        raise RuntimeError(f"{said}: {error}") from error


def _class_of(qualname: str) -> type:
    module, _, name = qualname.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"option memory_resource_config: there is no {qualname}: {error}") from error
    if not isinstance(found, type):
        raise ValueError(f"option memory_resource_config: {qualname} is no class")
    return found
