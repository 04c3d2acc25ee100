"""What can go wrong between a client and the broker, each with a next step and an exit code.

AllotmentError
├── WrongUse        a command was called in a way that means nothing (exit 2)
├── NotConfigured   no address or no token: this is not an Allotment workload (exit 2)
├── Unreachable     nothing answers at the address (exit 2)
├── NotAllotment    something answers, but it is not Allotment (exit 2)
└── Refused         the broker said no; `code` is its machine word (exit 1)
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["AllotmentError", "NotAllotment", "NotConfigured", "Refused", "Unreachable", "WrongUse"]


class AllotmentError(Exception):
    """`sentence` says what happened, `next_step` what to do now."""

    exit_code: ClassVar[int] = 1

    def __init__(self, sentence: str, next_step: str) -> None:
        super().__init__(f"{sentence} {next_step}")
        self.sentence = sentence
        self.next_step = next_step


class WrongUse(AllotmentError):
    exit_code = 2


class NotConfigured(AllotmentError):
    exit_code = 2


class Unreachable(AllotmentError):
    exit_code = 2


class NotAllotment(AllotmentError):
    exit_code = 2


class Refused(AllotmentError):
    """The broker's own refusal (RFC 9457). `status` is the HTTP status, `code` the machine word."""

    def __init__(self, sentence: str, next_step: str, *, code: str, status: int) -> None:
        super().__init__(sentence, next_step)
        self.code = code
        self.status = status
