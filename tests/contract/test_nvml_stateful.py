"""Random lives of simulated boards against the geometry rules, written down once more by hand."""

from __future__ import annotations

import tempfile
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest
from allotment_spawner.gpu.nvml.calls import compute_profile, discover_profiles, instances
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.models import known_models
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule


class Board(RuleBasedStateMachine):
    """`model` maps start -> (profile name, [compute instance?, process?])."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[int, tuple[str, list[bool]]] = {}

    @initialize(model=st.sampled_from(known_models()))
    def switch_on(self, model: str) -> None:
        state = StateFile(Path(self.folder.name) / "sim.json")
        state.create(f"sim:1x{model}")
        self.nvml: Any = SimulatedNvml(state=state)
        self.nvml.nvmlInit()
        self.board = self.nvml.nvmlDeviceGetHandleByIndex(0)
        self.control = SimControl(state.path)
        self.profiles = discover_profiles(self.nvml, self.board)
        self.by_name = {p.name: p for p in self.profiles}
        self.uuids: set[str] = set()

    def teardown(self) -> None:
        self.folder.cleanup()

    def legal(self, name: str, start: int) -> bool:
        profile = self.by_name[name]
        cells = {c for s, (n, _) in self.model.items() for c in range(s, s + self.by_name[n].size)}
        names = [n for n, _ in self.model.values()]
        if cells & set(range(start, start + profile.size)) or names.count(name) >= profile.max_instances:
            return False
        if "+me" in name and any("+me" in n for n in names):
            return False
        if name.endswith("+me.all"):
            return all(n.endswith("-me") for n in names)
        return name.endswith("-me") or not any(n.endswith("+me.all") for n in names)

    def find(self, start: int) -> Any:
        return next(i for i in instances(self.nvml, self.board, self.profiles) if i.start == start)

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        profile = data.draw(st.sampled_from(self.profiles))
        start = data.draw(st.sampled_from(profile.starts))
        placement = self.nvml.c_nvmlGpuInstancePlacement_t(start, profile.size)
        create = self.nvml.nvmlDeviceCreateGpuInstanceWithPlacement
        if self.legal(profile.name, start):
            create(self.board, profile.profile_id, byref(placement))
            self.model[start] = (profile.name, [False, False])
        else:
            with pytest.raises(self.nvml.NVMLError_InsufficientResources):
                create(self.board, profile.profile_id, byref(placement))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(sorted(self.model)))
        handle = self.find(start).handle
        has = self.model[start][1]
        if has[0]:
            with pytest.raises(self.nvml.NVMLError_InsufficientResources):
                self.nvml.nvmlGpuInstanceCreateComputeInstance(handle, compute_profile(self.nvml, handle))
            return
        self.nvml.nvmlGpuInstanceCreateComputeInstance(handle, compute_profile(self.nvml, handle))
        uuid = self.find(start).computes[0][2]
        assert uuid not in self.uuids
        self.uuids.add(uuid)
        has[0] = True

    @precondition(lambda self: any(has[0] for _, has in self.model.values()))
    @rule(data=st.data(), on=st.booleans())
    def work(self, data: st.DataObject, on: bool) -> None:
        start = data.draw(st.sampled_from([s for s, (_, has) in sorted(self.model.items()) if has[0]]))
        uuid = self.find(start).computes[0][2]
        if on:
            self.control.load(uuid)
        else:
            self.control.unload(uuid)
        self.model[start][1][1] = on

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(sorted(self.model)))
        found, (_, has) = self.find(start), self.model[start]
        if has[0]:
            with pytest.raises(self.nvml.NVMLError_InUse):
                self.nvml.nvmlGpuInstanceDestroy(found.handle)
        if has[1]:
            with pytest.raises(self.nvml.NVMLError_InUse):
                self.nvml.nvmlComputeInstanceDestroy(found.computes[0][0])
            return
        for handle, _, _ in found.computes:
            self.nvml.nvmlComputeInstanceDestroy(handle)
        self.nvml.nvmlGpuInstanceDestroy(found.handle)
        del self.model[start]

    @invariant()
    def machine_is_as_the_model(self) -> None:
        if not hasattr(self, "nvml"):
            return
        found = instances(self.nvml, self.board, self.profiles)
        assert {i.start: (i.profile.name, bool(i.computes)) for i in found} == {
            start: (name, has[0]) for start, (name, has) in self.model.items()
        }
        assert len({i.instance_id for i in found}) == len(found)
        for profile in self.profiles:
            left = self.nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(self.board, profile.profile_id)
            assert (left > 0) == any(self.legal(profile.name, start) for start in profile.starts)


TestBoard = Board.TestCase
TestBoard.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
