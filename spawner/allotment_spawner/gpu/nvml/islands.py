"""Which GPUs are joined by NVLink."""

from __future__ import annotations

from typing import Any

__all__ = ["islands"]

_SWITCH = "switch"


def islands(nvml: Any, boards: dict[int, Any]) -> dict[int, int]:
    """Index -> island number (the smallest index in it). A GPU whose links cannot be read is alone.

    GPUs on NVSwitches are one island, since every GPU of a node reaches every switch.
    """
    names: dict[int, str] = {}
    for index, board in boards.items():
        try:
            names[index] = _bus_id(nvml.nvmlDeviceGetPciInfo(board))
        except nvml.NVMLError:
            names[index] = f"unknown {index}"
    joined: dict[int, set[str]] = {
        index: {names[index], *_neighbours(nvml, board)} for index, board in boards.items()
    }
    groups: list[tuple[set[int], set[str]]] = []
    for index, reached in joined.items():
        members, names_in_group = {index}, set(reached)
        apart = []
        for others, other_names in groups:
            if other_names & names_in_group:
                members |= others
                names_in_group |= other_names
            else:
                apart.append((others, other_names))
        groups = [*apart, (members, names_in_group)]
    return {index: min(members) for members, _ in groups for index in members}


def _bus_id(info: Any) -> str:
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    return text.upper()


def _neighbours(nvml: Any, board: Any) -> set[str]:
    found: set[str] = set()
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(board, link):
                continue
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(board, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                found.add(_SWITCH)
            else:
                found.add(_bus_id(nvml.nvmlDeviceGetNvLinkRemotePciInfo(board, link)))
        except nvml.NVMLError:
            # Boards without NVLink, or with fewer links, answer NOT_SUPPORTED or INVALID_ARGUMENT.
            break
    return found
