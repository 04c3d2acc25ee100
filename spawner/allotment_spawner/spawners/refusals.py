"""A refusal as JupyterHub shows it: status, sentence and next step, in text and in escaped HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from jupyterhub.spawner import SpawnException

from allotment_spawner.core.errors import (
    AgentUnavailable,
    BadOptions,
    BrokerUnavailable,
    BudgetExhausted,
    ChargeNotAllowed,
    DatasetUnavailable,
    DeviceBusy,
    DeviceMismatch,
    DiskFull,
    EngineUnavailable,
    EnvironmentNotAllowed,
    EnvironmentUnavailable,
    FlavorNotAllowed,
    FlavorUnavailable,
    GrantExpired,
    LimitReached,
    LocalEngineClosed,
    NotAllowed,
    Refusal,
    SignInNeeded,
    StaleAttempt,
    StartFailed,
    UnknownDataset,
    UnknownEnvironment,
    UnknownFlavor,
    UnknownVersion,
    WaitTooLong,
    WrongState,
    refusal_from_code,
)
from allotment_spawner.core.lease import EndReason
from allotment_spawner.wire import LeaseReply, Problem

__all__ = ["SPAWN_STATUS", "blames_choice", "ended_refusal", "problem_refusal", "spawn_exception"]

SPAWN_STATUS: Final[Mapping[type[Refusal], int]] = {
    BudgetExhausted: 402,
    ChargeNotAllowed: 403,
    FlavorNotAllowed: 403,
    EnvironmentNotAllowed: 403,
    LimitReached: 429,
    LocalEngineClosed: 403,
    NotAllowed: 503,
    SignInNeeded: 503,
    StaleAttempt: 409,
    WrongState: 409,
    GrantExpired: 409,
    DeviceBusy: 503,
    DeviceMismatch: 500,
    DiskFull: 503,
    StartFailed: 500,
    AgentUnavailable: 503,
    BrokerUnavailable: 503,
    EngineUnavailable: 503,
}
"""What a refused start answers; 422 for the rest. NotAllowed and SignInNeeded are about the hub's own
token at the broker, never about the person's."""

_OF_THE_CHOICE: Final = (
    BadOptions,
    UnknownEnvironment,
    UnknownFlavor,
    EnvironmentNotAllowed,
    FlavorNotAllowed,
    EnvironmentUnavailable,
    FlavorUnavailable,
    UnknownVersion,
    UnknownDataset,
    DatasetUnavailable,
    ChargeNotAllowed,
    BudgetExhausted,
    LimitReached,
)
_ENDED: Final[Mapping[EndReason, tuple[type[Refusal], str, str]]] = {
    EndReason.REPLACED: (
        StaleAttempt,
        "A newer start of the same server took over this one.",
        "Look at the newer one on the home page.",
    ),
    EndReason.CANCELLED: (StartFailed, "The start was cancelled.", "Start again when you like."),
    EndReason.ABANDONED: (
        WaitTooLong,
        "The place in the queue was given up, because nobody waited for it any more.",
        "Start again; you are placed at the end of the queue.",
    ),
    EndReason.GRANT_EXPIRED: (
        GrantExpired,
        "A device was ready, but the server was not started in time.",
        "Start again.",
    ),
    EndReason.WAIT_LIMIT: (
        WaitTooLong,
        "The wait took longer than this site allows.",
        "Choose a smaller size, or start again later.",
    ),
    EndReason.NODE_RESTARTED: (
        StartFailed,
        "The machine restarted while the server was starting.",
        "Start again.",
    ),
}


def spawn_exception(refusal: Refusal) -> SpawnException:
    """The hub's exception for `refusal`.

    JupyterHub 6.1.1's pages print the class name unless `jupyterhub_message` is set and ignore
    `message_html`, so both attributes are set here; our templates also read `allotment`.
    """
    text = f"{refusal.sentence} {refusal.next_step}".strip()
    html = f"<p>{escape(refusal.sentence)}</p><p>{escape(refusal.next_step)}</p>"
    status = SPAWN_STATUS.get(type(refusal), 422)
    error = SpawnException(text, reason=refusal.code, message_html=html, status_code=status)
    error.jupyterhub_message = text
    error.jupyterhub_html_message = html
    error.allotment = {"code": refusal.code, "sentence": refusal.sentence, "next_step": refusal.next_step}
    return error


def problem_refusal(problem: Problem) -> Refusal:
    """The refusal that the broker sent."""
    return refusal_from_code(problem.code, problem.detail, problem.next_step)


def ended_refusal(reply: LeaseReply) -> Refusal:
    """Why a lease that ended before it ran did so."""
    if reply.refusal is not None:
        return problem_refusal(reply.refusal)
    reason = reply.lease.end_reason
    if reason is not None and reason in _ENDED:
        kind, sentence, next_step = _ENDED[reason]
        return kind(sentence, next_step)
    return StartFailed("The start ended before the server ran.", "Start again; tell an operator if it stays.")


def blames_choice(refusal: Refusal) -> bool:
    """Whether another choice could have started, so that this one must not become the default."""
    return isinstance(refusal, _OF_THE_CHOICE)
