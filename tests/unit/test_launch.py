"""What launch/ describes: limits, walls, devices, names and environments."""

from __future__ import annotations

from typing import Any

import pytest
from allotment_spawner.launch.container import (
    RequestDevices,
    container_options,
    home_mount,
    requested_devices,
)
from allotment_spawner.launch.names import container_name, home_volume_name, lease_of_name, safe_name
from allotment_spawner.launch.process import gate_argv, is_gate, process_env
from allotment_testing.engine_makers import a_launch
from hypothesis import given
from hypothesis import strategies as st

INSTALLATION = "0a1b2c3d"


def options(request: RequestDevices, devices: tuple[str, ...] = ("MIG-1",), **extra: Any) -> Any:
    limits: dict[str, Any] = {"cpu": 2.5, "memory_bytes": 8 << 30, "shm_bytes": 1 << 30, "pids": 4096}
    launch = a_launch(
        installation=INSTALLATION, lease="lease-1", devices=devices, digest="sha256:abc", **limits
    )
    return container_options(
        launch,
        user="ada",
        server="",
        home=home_mount("volume", installation=INSTALLATION, user="ada"),
        network="allotment",
        request_devices=request,
        **extra,
    )


def test_limits_and_walls() -> None:
    host = options("nvidia").host_config
    assert host["cpu_quota"] / host["cpu_period"] == 2.5
    assert host["mem_limit"] == host["memswap_limit"] == 8 << 30
    assert (host["pids_limit"], host["shm_size"]) == (4096, 1 << 30)
    assert host["cap_drop"] == ["ALL"]
    assert host["security_opt"] == ["no-new-privileges:true"]
    assert host["restart_policy"] == {"Name": "no"}
    assert (host["init"], host["privileged"], host["network_mode"]) == (True, False, "allotment")


def test_the_image_is_its_content_and_the_name_its_lease() -> None:
    made = options("nvidia")
    assert made.create["image"] == "sha256:abc"
    assert made.name == made.create["name"] == "allotment-0a1b2c3d-lease-1"
    assert made.create["user"] == "1000:100"


@pytest.mark.parametrize(
    ("request_devices", "expected", "visible"),
    [
        ("nvidia", [{"driver": "nvidia", "device_ids": ["MIG-1"], "capabilities": [["gpu"]]}], "MIG-1"),
        ("cdi", [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=MIG-1"]}], "void"),
        ("env", None, "void"),
    ],
)
def test_a_device_is_asked_for_by_what_the_engine_has(
    request_devices: RequestDevices, expected: Any, visible: str
) -> None:
    made = options(request_devices)
    assert made.host_config.get("device_requests") == expected
    assert made.create["environment"]["NVIDIA_VISIBLE_DEVICES"] == visible
    assert made.create["environment"]["ALLOTMENT_DEVICES"] == "MIG-1"


@pytest.mark.parametrize("request_devices", ["nvidia", "cdi", "env"])
def test_a_cpu_flavor_sees_no_device(request_devices: RequestDevices) -> None:
    made = options(request_devices, devices=())
    assert "device_requests" not in made.host_config
    assert made.create["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert made.create["environment"]["ALLOTMENT_DEVICES"] == ""


def test_the_hubs_variables_cannot_name_another_device() -> None:
    forged = {"NVIDIA_VISIBLE_DEVICES": "all", "ALLOTMENT_LEASE": "theirs", "JUPYTERHUB_API_TOKEN": "t"}
    environment = options("nvidia", extra_env=forged).create["environment"]
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "MIG-1"
    assert environment["ALLOTMENT_LEASE"] == "lease-1"
    assert environment["JUPYTERHUB_API_TOKEN"] == "t"


@pytest.mark.parametrize("request_devices", ["nvidia", "cdi"])
def test_requested_devices_reads_back_what_was_asked(request_devices: RequestDevices) -> None:
    asked = options(request_devices, devices=("MIG-1", "MIG-2")).host_config["device_requests"]
    inspected = {
        "HostConfig": {"DeviceRequests": [{"DeviceIDs": one["device_ids"]} for one in asked]},
        "Config": {"Env": ["ALLOTMENT_DEVICES=MIG-forged"]},
    }
    assert requested_devices(inspected) == ("MIG-1", "MIG-2")


def test_requested_devices_falls_back_to_the_variable() -> None:
    assert requested_devices({"Config": {"Env": ["A=b", "ALLOTMENT_DEVICES=MIG-1,MIG-2"]}}) == (
        "MIG-1",
        "MIG-2",
    )
    assert requested_devices({"HostConfig": {"DeviceRequests": None}, "Config": {"Env": None}}) == ()


def test_without_an_image_there_is_no_container() -> None:
    launch = a_launch(installation=INSTALLATION, lease="l")
    with pytest.raises(ValueError, match="image"):
        container_options(
            launch,
            user="ada",
            server="",
            home=home_mount("/homes/{username}", installation=INSTALLATION, user="ada"),
            network="n",
            request_devices="env",
        )


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_stay_apart_and_inside(one: str, other: str) -> None:
    made = safe_name(one)
    assert (made == safe_name(other)) == (one == other)
    assert "/" not in made
    assert made not in {".", ".."}
    assert home_volume_name(INSTALLATION, one).isascii()
    assert home_mount("/homes/{username}", installation=INSTALLATION, user=one).source == f"/homes/{made}"


def test_only_our_names_state_a_lease() -> None:
    assert lease_of_name(container_name(INSTALLATION, "l-1"), INSTALLATION) == "l-1"
    assert lease_of_name("/" + container_name(INSTALLATION, "l-1"), INSTALLATION) == "l-1"
    for name in ("allotment-ffffffff-l-1", f"allotment-{INSTALLATION}-", f"x-allotment-{INSTALLATION}-l", ""):
        assert lease_of_name(name, INSTALLATION) is None


def test_a_local_process_inherits_no_secret() -> None:
    base = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "CONFIGPROXY_AUTH_TOKEN": "secret",
        "JUPYTERHUB_CRYPT_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "https_proxy": "http://me:secret@proxy",
        "http_proxy": "http://proxy:3128",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    launch = a_launch(installation=INSTALLATION, lease="lease-1", devices=("MIG-1",), engine="local")
    made = process_env(
        launch, base, user="ada", server="lab", extra_env={"HOME": "/h", "ALLOTMENT_LEASE": "x"}
    )
    assert "secret" not in str(made)
    assert (made["PATH"], made["LC_ALL"], made["http_proxy"]) == ("/bin", "C", "http://proxy:3128")
    assert (made["CUDA_VISIBLE_DEVICES"], made["ALLOTMENT_DEVICES"]) == ("MIG-1", "MIG-1")
    assert (made["ALLOTMENT_LEASE"], made["ALLOTMENT_USER"], made["ALLOTMENT_SERVER"]) == (
        "lease-1",
        "ada",
        "lab",
    )


def test_a_local_cpu_flavor_sees_no_device() -> None:
    launch = a_launch(installation=INSTALLATION, lease="lease-1", engine="local")
    assert process_env(launch, {}, user="ada", server="")["CUDA_VISIBLE_DEVICES"] == ""


def test_the_gate_knows_itself() -> None:
    argv = gate_argv(["jupyterhub-singleuser", "--x=$(rm -rf /)"])
    assert is_gate(argv)
    assert argv[-1] == "--x=$(rm -rf /)"
    assert not is_gate(["/bin/sh", "-c", "sleep 1"])
    with pytest.raises(ValueError, match="nothing"):
        gate_argv([])
