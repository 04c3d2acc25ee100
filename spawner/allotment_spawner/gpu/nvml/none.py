"""A driver with no GPUs: what `--gpus none` opens."""
# ruff: noqa: N802

from __future__ import annotations

from typing import Any

import pynvml

__all__ = ["NoGpus"]


class NoGpus:
    """The two calls of a read on a node without GPUs; constants and errors are pynvml's."""

    def nvmlDeviceGetCount(self) -> int:
        return 0

    def nvmlSystemGetDriverVersion(self) -> str:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)
