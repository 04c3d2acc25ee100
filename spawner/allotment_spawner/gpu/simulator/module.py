"""SimulatedNvml: stands where the pynvml module stands."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pynvml

from allotment_spawner.gpu.simulator.devices import DeviceCalls
from allotment_spawner.gpu.simulator.gauges import GaugeCalls
from allotment_spawner.gpu.simulator.gpm import GpmCalls
from allotment_spawner.gpu.simulator.instances import InstanceCalls

__all__ = ["SimulatedNvml"]


class SimulatedNvml(DeviceCalls, InstanceCalls, GaugeCalls, GpmCalls):
    """The calls of the classes above; constants, structs and errors are pynvml's own.

    A function that is not simulated fails with FUNCTION_NOT_FOUND, as on an old driver.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(pynvml, name)
        if not isinstance(found, FunctionType):
            return found

        def missing(*_arguments: object, **_named: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

        return missing
