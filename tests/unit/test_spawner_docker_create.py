"""A site's own Docker options are honoured; what the fence stands on is not theirs to change."""

from __future__ import annotations

from typing import Any

from allotment_spawner.launch.container import ContainerOptions
from allotment_spawner.spawners.docker_create import create_arguments

OURS = ContainerOptions(
    name="allotment-feedbeef-l1",
    labels={"allotment.devices": "MIG-1"},
    host_config={
        "device_requests": [{"driver": "nvidia", "device_ids": ["MIG-1"]}],
        "auto_remove": False,
        "restart_policy": {"Name": "no"},
        "privileged": False,
        "cap_drop": ["ALL"],
        "mounts": [{"Target": "/home/jovyan"}],
    },
    create={
        "image": "sha256:1",
        "name": "allotment-feedbeef-l1",
        "labels": {"allotment.devices": "MIG-1"},
        "environment": {"NVIDIA_VISIBLE_DEVICES": "MIG-1"},
    },
)


def made(ours: ContainerOptions = OURS, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    stock: dict[str, Any] = {
        "ports": (),
        "host_ip": "127.0.0.1",
        "exposed": 8888,
        "volumes": ["/data"],
        "host_config": {
            "binds": {"shared": {"bind": "/data"}},
            "links": {},
            "mounts": [{"Target": "/course"}],
        },
        "extra_create": {},
        "extra_host": {},
    }
    return create_arguments(ours, **(stock | changes))


def test_stock_volumes_mounts_and_ports_are_added() -> None:
    create, host = made(ports=(8888,))
    assert create["volumes"] == ["/data"]
    assert create["ports"] == {"8888/tcp": None}
    assert host["binds"] == {"shared": {"bind": "/data"}}
    assert [mount["Target"] for mount in host["mounts"]] == ["/home/jovyan", "/course"]
    assert host["port_bindings"] == {8888: ("127.0.0.1",)}
    assert "links" not in host


def test_site_options_are_added_but_never_weaken_the_fence() -> None:
    create, host = made(
        extra_create={
            "image": "evil",
            "name": "other",
            "hostname": "notebook",
            "labels": {"course": "ml", "allotment.devices": "MIG-2"},
            "environment": {"COURSE": "ml", "NVIDIA_VISIBLE_DEVICES": "all"},
        },
        extra_host={
            "device_requests": [],
            "privileged": True,
            "cap_add": ["SYS_PTRACE"],
            "auto_remove": True,
        },
    )
    assert (create["image"], create["name"], create["hostname"]) == ("sha256:1", OURS.name, "notebook")
    assert create["labels"] == {"course": "ml", "allotment.devices": "MIG-1"}
    assert create["environment"] == {"COURSE": "ml", "NVIDIA_VISIBLE_DEVICES": "MIG-1"}
    assert host["device_requests"] == OURS.host_config["device_requests"]
    assert (host["privileged"], host["auto_remove"]) == (False, False)
    assert host["cap_add"] == ["SYS_PTRACE"]


def test_a_cpu_lease_gets_no_device_from_the_site_s_options() -> None:
    plain = {key: value for key, value in OURS.host_config.items() if key != "device_requests"}
    cpu = ContainerOptions(name="n", labels={}, host_config=plain, create=OURS.create)
    _, host = made(cpu, extra_host={"device_requests": [{"count": -1}]})
    assert "device_requests" not in host
