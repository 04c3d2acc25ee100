"""The firewall rules on the real iptables of a private network: applied, moved, taken down."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from allotment_spawner.engines.firewall import Firewall, FirewallError, firewall_rules, run_iptables
from allotment_testing.docker_netns import private_network


@pytest.fixture
def firewall() -> Iterator[Firewall]:
    with private_network():
        run_iptables(["iptables", "-N", "DOCKER-USER"])
        run_iptables(["iptables", "-A", "FORWARD", "-j", "DOCKER-USER"])
        run_iptables(["iptables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"])
        yield Firewall(run=run_iptables)


def listed() -> str:
    return run_iptables(["iptables", "-S"])


RULES = firewall_rules(
    installation="0a1b2c3d", interface="br-1", gateway="172.18.0.1", ports=[8000, 8081, 9000]
)


def test_applying_twice_is_applying_once(firewall: Firewall) -> None:
    assert not firewall.applied(RULES)
    firewall.apply(RULES)
    once = listed()
    firewall.apply(RULES)
    assert listed() == once
    assert firewall.applied(RULES)
    assert once.count("-j ALLOTMENT-0a1b2c3d-IN") == 1


def test_our_hook_comes_before_the_systems_rules(firewall: Firewall) -> None:
    firewall.apply(RULES)
    rules = [line for line in listed().splitlines() if line.startswith("-A INPUT")]
    assert rules[0].endswith("-j ALLOTMENT-0a1b2c3d-IN")
    assert "allotment 0a1b2c3d" in rules[0]


def test_a_new_bridge_takes_the_old_ones_place(firewall: Firewall) -> None:
    firewall.apply(RULES)
    moved = firewall_rules(installation="0a1b2c3d", interface="br-2", gateway="172.19.0.1", ports=[8000])
    firewall.apply(moved)
    assert firewall.applied(moved)
    assert not firewall.applied(RULES)
    assert "br-1" not in listed()


def test_a_hook_that_someone_deleted_is_noticed_and_made_again(firewall: Firewall) -> None:
    firewall.apply(RULES)
    run_iptables(["iptables", "-F", "INPUT"])
    assert not firewall.applied(RULES)
    firewall.apply(RULES)
    assert firewall.applied(RULES)


def test_removal_leaves_everything_else(firewall: Firewall) -> None:
    before = listed()
    other = firewall_rules(installation="ffffffff", interface="br-9", gateway="172.20.0.1", ports=[1])
    firewall.apply(other)
    with_other = listed()
    firewall.apply(RULES)
    firewall.remove("0a1b2c3d")
    assert listed() == with_other
    firewall.remove("ffffffff")
    firewall.remove("ffffffff")
    assert listed() == before


def test_the_printed_commands_do_the_same(firewall: Firewall) -> None:
    for command in RULES.commands():
        run_iptables(shlex.split(command))
    pasted = listed()
    assert firewall.applied(RULES)
    firewall.remove("0a1b2c3d")
    firewall.apply(RULES)
    assert sorted(listed().splitlines()) == sorted(pasted.splitlines())


def test_without_dockers_chain_the_hook_hangs_in_forward() -> None:
    with private_network():
        firewall = Firewall(run=run_iptables)
        assert not firewall.has_docker_user()
        rules = firewall_rules(
            installation="0a1b2c3d", interface="br-1", gateway="10.0.0.1", ports=[1], docker_user=False
        )
        firewall.apply(rules)
        assert firewall.applied(rules)


def test_a_refusal_carries_iptables_own_words(firewall: Firewall) -> None:
    with pytest.raises(FirewallError, match="refused"):
        run_iptables(["iptables", "-S", "NO-SUCH-CHAIN"])
    with pytest.raises(FirewallError, match="not installed"):
        run_iptables(["iptables-of-another-world"])
