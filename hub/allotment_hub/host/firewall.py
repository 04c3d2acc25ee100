"""What containers may reach on this host: our two ports, nothing else, and never the metadata address."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Firewall", "Run", "run_iptables"]

Run = Callable[[Sequence[str]], int]
METADATA = "169.254.0.0/16"
ANYWHERE = "/usr/sbin:/sbin:/usr/bin:/bin"


def run_iptables(argv: Sequence[str]) -> int:
    """Exit code of `iptables -w …`; 127 when there is no iptables."""
    program = shutil.which("iptables", path=f"{os.environ.get('PATH', '')}:{ANYWHERE}")
    if program is None:
        return 127
    return subprocess.run([program, "-w", "5", *argv], check=False, capture_output=True).returncode


@dataclass(frozen=True, slots=True)
class Firewall:
    """The rules of one installation, in a chain of its own.

    `bridge` is the interface of our network, `gateway` its address on this host, `ports` the hub's,
    the broker's and the proxy's. Answers to connections that this host opened pass: the proxy and
    the hub talk to the containers.
    """

    installation: str
    bridge: str
    gateway: str
    ports: tuple[int, ...]

    @property
    def chain(self) -> str:
        return f"ALLOTMENT-{self.installation}"

    def chain_rules(self) -> list[list[str]]:
        """The chain's content, in order."""
        ports = ",".join(map(str, sorted(set(self.ports))))
        return [
            ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "RETURN"],
            [
                "-i",
                self.bridge,
                "-d",
                self.gateway,
                "-p",
                "tcp",
                "-m",
                "multiport",
                "--dports",
                ports,
                "-j",
                "RETURN",
            ],
            ["-i", self.bridge, "-j", "REJECT"],
            # The inner ports are for this host and its containers, not for neighbours that route to them.
            ["!", "-i", "lo", "-d", self.gateway, "-p", "tcp", "-j", "REJECT"],
        ]

    def jumps(self) -> list[tuple[str, list[str]]]:
        """(chain, rule) pairs that belong at the head of chains which are not ours."""
        return [
            ("INPUT", ["-j", self.chain]),
            ("DOCKER-USER", ["-i", self.bridge, "-d", METADATA, "-j", "REJECT"]),
        ]

    def missing(self, run: Run = run_iptables) -> list[str]:
        """The commands, as a person would type them, that would install what is not there."""
        wanted = []
        if any(run(["-C", self.chain, *rule]) for rule in self.chain_rules()):
            wanted += [["-N", self.chain], ["-F", self.chain]]
            wanted += [["-A", self.chain, *rule] for rule in self.chain_rules()]
        wanted += [["-I", chain, *rule] for chain, rule in self.jumps() if run(["-C", chain, *rule])]
        return [shlex.join(["iptables", *command]) for command in wanted]

    def install(self, run: Run = run_iptables) -> bool:
        """Make it so; whether it is. Repeating changes nothing."""
        run(["-N", self.chain])
        done = run(["-F", self.chain]) == 0
        for rule in self.chain_rules():
            done = run(["-A", self.chain, *rule]) == 0 and done
        for chain, rule in self.jumps():
            done = (run(["-C", chain, *rule]) == 0 or run(["-I", chain, *rule]) == 0) and done
        return done

    def remove(self, run: Run = run_iptables) -> None:
        for chain, rule in self.jumps():
            run(["-D", chain, *rule])
        run(["-F", self.chain])
        run(["-X", self.chain])
