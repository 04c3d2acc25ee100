"""Every refusal is one class: a machine word, a sentence, what to do next.

Refusal
├── BadOptions                 malformed or mistyped user options
├── UnknownFlavor, UnknownEnvironment, UnknownVersion, UnknownDataset
├── FlavorNotAllowed, EnvironmentNotAllowed
├── FlavorUnavailable          the hardware has no such device, or it is unusable
├── EnvironmentUnavailable     the image is not on this machine
├── DatasetUnavailable         the data cannot be brought to this machine
├── AddressNotAllowed          data from an address that may not be asked
├── NoSuchImage                no image of this digest is known
├── InUse                      a session or job still uses it
├── DiskFull                   less free space than the floor
├── HomeUnavailable            a home that cannot be had, or whose owner is unknown
├── NameTaken                  somebody or something has this name already
├── LinksNotAllowed            packages from addresses need an operator's explicit yes
├── TooManySaved               the person's limit of saved environments that wait
├── TooManySessions            the person's limit of live sessions
├── LimitReached               a limit of the person's groups: sessions or devices at a time
├── ChargeNotAllowed           the group to charge is none of the person's, or has no open budget
├── BudgetExhausted            what is left does not pay for the shortest time; says what lacks
├── NoSuchBudget, NoSuchEntry  unknown, or not yours to see
├── LocalEngineClosed          local engine: only its two accounts, or --trust-users
├── WaitTooLong                the wait's own limit passed
├── GrantExpired               confirm after the grant's deadline
├── StaleAttempt               an older attempt writes after a newer one
├── WrongState                 the lease is past the step that was asked for
├── NoSuchLease                unknown, or not yours to see
├── NotAllowed                 the token may not do this
├── SignInNeeded               no token, or one the hub does not know
├── BrokerUnavailable          the broker does not answer
├── EngineUnavailable          the engine does not answer
├── AgentUnavailable           the agent does not answer, or missed its deadline
├── ExporterUnavailable        the DCGM exporter does not answer, or not with a page
├── DeviceBusy                 an instance or process is in the way of cutting
├── DeviceMismatch             the workload saw another device than its lease names
└── StartFailed                the workload was made but did not come up
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AddressNotAllowed",
    "AgentUnavailable",
    "BadOptions",
    "BrokerUnavailable",
    "BudgetExhausted",
    "ChargeNotAllowed",
    "DatasetUnavailable",
    "DeviceBusy",
    "DeviceMismatch",
    "DiskFull",
    "EngineUnavailable",
    "EnvironmentNotAllowed",
    "EnvironmentUnavailable",
    "ExporterUnavailable",
    "FlavorNotAllowed",
    "FlavorUnavailable",
    "GrantExpired",
    "HomeUnavailable",
    "InUse",
    "LimitReached",
    "LinksNotAllowed",
    "LocalEngineClosed",
    "NameTaken",
    "NoSuchBudget",
    "NoSuchEntry",
    "NoSuchImage",
    "NoSuchLease",
    "NotAllowed",
    "Refusal",
    "SignInNeeded",
    "StaleAttempt",
    "StartFailed",
    "TooManySaved",
    "TooManySessions",
    "UnknownDataset",
    "UnknownEnvironment",
    "UnknownFlavor",
    "UnknownVersion",
    "WaitTooLong",
    "WrongState",
    "refusal_from_code",
]


class Refusal(Exception):
    """A polite no. `sentence` says what happened and why; `next_step` what to do now.

    `details` holds extra machine-readable members for problem+json (never secrets or others' names).
    """

    code: ClassVar[str] = "refused"

    def __init__(self, sentence: str, next_step: str, **details: object) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.next_step = next_step
        self.details = details


class BadOptions(Refusal):
    code = "bad_options"


class UnknownFlavor(Refusal):
    code = "unknown_flavor"


class UnknownEnvironment(Refusal):
    code = "unknown_environment"


class FlavorNotAllowed(Refusal):
    code = "flavor_not_allowed"


class EnvironmentNotAllowed(Refusal):
    code = "environment_not_allowed"


class FlavorUnavailable(Refusal):
    code = "flavor_unavailable"


class EnvironmentUnavailable(Refusal):
    code = "environment_unavailable"


class UnknownVersion(Refusal):
    code = "unknown_version"


class UnknownDataset(Refusal):
    code = "unknown_dataset"


class DatasetUnavailable(Refusal):
    code = "dataset_unavailable"


class AddressNotAllowed(Refusal):
    code = "address_not_allowed"


class NoSuchImage(Refusal):
    code = "no_such_image"


class InUse(Refusal):
    code = "in_use"


class DiskFull(Refusal):
    code = "disk_full"


class HomeUnavailable(Refusal):
    code = "home_unavailable"


class NameTaken(Refusal):
    code = "name_taken"


class LinksNotAllowed(Refusal):
    code = "links_not_allowed"


class TooManySaved(Refusal):
    code = "too_many_saved"


class TooManySessions(Refusal):
    code = "too_many_sessions"


class LimitReached(Refusal):
    code = "limit_reached"


class ChargeNotAllowed(Refusal):
    code = "charge_not_allowed"


class BudgetExhausted(Refusal):
    code = "budget_exhausted"


class NoSuchBudget(Refusal):
    code = "no_such_budget"


class NoSuchEntry(Refusal):
    code = "no_such_entry"


class LocalEngineClosed(Refusal):
    code = "local_engine_closed"


class WaitTooLong(Refusal):
    code = "wait_too_long"


class GrantExpired(Refusal):
    code = "grant_expired"


class StaleAttempt(Refusal):
    code = "stale_attempt"


class WrongState(Refusal):
    code = "wrong_state"


class NoSuchLease(Refusal):
    code = "no_such_lease"


class NotAllowed(Refusal):
    code = "not_allowed"


class SignInNeeded(Refusal):
    code = "sign_in_needed"


class BrokerUnavailable(Refusal):
    code = "broker_unavailable"


class EngineUnavailable(Refusal):
    code = "engine_unavailable"


class AgentUnavailable(Refusal):
    code = "agent_unavailable"


class ExporterUnavailable(Refusal):
    code = "exporter_unavailable"


class DeviceBusy(Refusal):
    code = "device_busy"


class DeviceMismatch(Refusal):
    code = "device_mismatch"


class StartFailed(Refusal):
    code = "start_failed"


def refusal_from_code(code: str, sentence: str, next_step: str, **details: object) -> Refusal:
    """The class for a machine word received over the wire; an unknown word gives `Refusal`."""
    for kind in Refusal.__subclasses__():
        if kind.code == code:
            return kind(sentence, next_step, **details)
    return Refusal(sentence, next_step, **details)
