"""Firewall rules that keep containers on our bridge away from the host, as data and applied."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Firewall", "FirewallError", "FirewallRules", "Hook", "firewall_rules", "run_iptables"]

Run = Callable[[Sequence[str], str | None], str]
"""Runs an argument list with standard input; returns standard output, raises FirewallError."""

_ESTABLISHED = "-m conntrack --ctstate ESTABLISHED,RELATED"
_LINK_LOCAL = "169.254.0.0/16"


class FirewallError(Exception):
    """iptables is missing, refused, or was called without root."""


@dataclass(frozen=True, slots=True)
class Hook:
    """The rule that sends our bridge's packets from a chain of the system's into one of ours."""

    chain: str
    arguments: str


@dataclass(frozen=True, slots=True)
class FirewallRules:
    """Our two chains with their rules (iptables words without the chain), and where they hang."""

    input_chain: str
    forward_chain: str
    input_rules: tuple[str, ...]
    forward_rules: tuple[str, ...]
    hooks: tuple[Hook, Hook]

    def restore_text(self) -> str:
        """For `iptables-restore --noflush`: both chains replaced in one step, nothing else touched."""
        lines = ["*filter", f":{self.input_chain} - [0:0]", f":{self.forward_chain} - [0:0]"]
        lines += [f"-A {self.input_chain} {rule}" for rule in self.input_rules]
        lines += [f"-A {self.forward_chain} {rule}" for rule in self.forward_rules]
        return "\n".join([*lines, "COMMIT", ""])

    def commands(self) -> list[str]:
        """What an operator can paste as root to get the same."""
        lines = [f"iptables -N {chain}" for chain in (self.input_chain, self.forward_chain)]
        lines += [f"iptables -A {self.input_chain} {rule}" for rule in self.input_rules]
        lines += [f"iptables -A {self.forward_chain} {rule}" for rule in self.forward_rules]
        return [*lines, *(f"iptables -I {hook.chain} 1 {hook.arguments}" for hook in self.hooks)]


def firewall_rules(
    *, installation: str, interface: str, gateway: str, ports: Sequence[int], docker_user: bool = True
) -> FirewallRules:
    """Containers on bridge `interface` reach, of this host, only TCP `ports` at `gateway`; of the link-local
    range (cloud metadata) and of each other nothing; the rest of the network as the host lets them.

    `docker_user`: hang into Docker's own chain for that purpose; else into FORWARD.
    """
    tag = f'-m comment --comment "allotment {installation}"'
    input_chain, forward_chain = f"ALLOTMENT-{installation}-IN", f"ALLOTMENT-{installation}-FW"
    listed = ",".join(str(port) for port in sorted(set(ports)))
    return FirewallRules(
        input_chain=input_chain,
        forward_chain=forward_chain,
        input_rules=(
            # answers to the hub and the proxy, which connect to the notebooks
            f"{_ESTABLISHED} -j ACCEPT",
            f"-d {gateway}/32 -p tcp -m multiport --dports {listed} -j ACCEPT",
            "-p tcp -j REJECT --reject-with tcp-reset",
            "-j REJECT --reject-with icmp-port-unreachable",
        ),
        forward_rules=(
            f"{_ESTABLISHED} -j RETURN",
            f"-d {_LINK_LOCAL} -j REJECT --reject-with icmp-port-unreachable",
            f"-o {interface} -j REJECT --reject-with icmp-port-unreachable",
        ),
        hooks=(
            Hook("INPUT", f"-i {interface} {tag} -j {input_chain}"),
            Hook("DOCKER-USER" if docker_user else "FORWARD", f"-i {interface} {tag} -j {forward_chain}"),
        ),
    )


class Firewall:
    """Applies, looks for and removes the rules. Needs root; `run` is injected for tests."""

    def __init__(self, *, run: Run) -> None:
        self._run = run

    def has_docker_user(self) -> bool:
        """Whether Docker manages iptables here."""
        try:
            self._run(["iptables", "-w", "-S", "DOCKER-USER"], None)
        except FirewallError:
            return False
        return True

    def apply(self, rules: FirewallRules) -> None:
        """Idempotent. The chains change in one step; a hook for an interface of before is removed last."""
        self._run(["iptables-restore", "--noflush", "-w"], rules.restore_text())
        for hook in rules.hooks:
            chain = hook.arguments.rpartition(" ")[2]
            hung = self._hung(hook.chain, chain)
            wanted = _words(hook.arguments)
            if not hung or hung[0] != wanted:
                self._run(["iptables", "-w", "-I", hook.chain, "1", *wanted], None)
                self._unhang(hook.chain, hung)
            else:
                self._unhang(hook.chain, hung[1:])

    def applied(self, rules: FirewallRules) -> bool:
        """Whether both hooks are there and both chains have as many rules as they should."""
        try:
            for hook, count in zip(
                rules.hooks, (len(rules.input_rules), len(rules.forward_rules)), strict=True
            ):
                chain = hook.arguments.rpartition(" ")[2]
                listed = self._run(["iptables", "-w", "-S", chain], None).splitlines()
                if len(listed) != count + 1 or _words(hook.arguments) not in self._hung(hook.chain, chain):
                    return False
        except FirewallError:
            return False
        return True

    def remove(self, installation: str) -> None:
        """Take down what `apply` made for this installation; nothing there is no error."""
        for chain in (f"ALLOTMENT-{installation}-IN", f"ALLOTMENT-{installation}-FW"):
            for system in ("INPUT", "DOCKER-USER", "FORWARD"):
                self._unhang(system, self._hung(system, chain))
            try:
                self._run(["iptables", "-w", "-S", chain], None)
            except FirewallError:
                continue
            self._run(["iptables", "-w", "-F", chain], None)
            self._run(["iptables", "-w", "-X", chain], None)

    def _hung(self, system: str, chain: str) -> list[list[str]]:
        """Rules (their words) of a system chain that jump to ours."""
        try:
            listed = self._run(["iptables", "-w", "-S", system], None).splitlines()
        except FirewallError:
            return []
        rules = [_words(line.removeprefix(f"-A {system} ")) for line in listed if line.startswith("-A ")]
        return [rule for rule in rules if rule[-2:] == ["-j", chain]]

    def _unhang(self, system: str, rules: Sequence[Sequence[str]]) -> None:
        for rule in rules:
            self._run(["iptables", "-w", "-D", system, *rule], None)


def run_iptables(argv: Sequence[str], text: str | None = None) -> str:
    """Runs iptables itself; `FirewallError` with its own words when it fails or is not there."""
    program = shutil.which(argv[0]) or shutil.which(argv[0], path="/usr/sbin:/sbin")
    if program is None:
        raise FirewallError(f"{argv[0]} is not installed.")
    try:
        done = subprocess.run(
            [program, *argv[1:]], input=text, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FirewallError(f"{argv[0]} could not run: {error}") from error
    if done.returncode != 0:
        raise FirewallError(f"{argv[0]} refused: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _words(rule: str) -> list[str]:
    return shlex.split(rule)
