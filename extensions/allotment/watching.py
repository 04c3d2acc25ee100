"""The stream of samples for as long as somebody looks: opened again whenever it breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

from allotment.client import Client
from allotment.errors import Refused, Unreachable
from allotment.samples import Samples

__all__ = ["watch"]

_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)


def watch(
    client: Client, *, everybody: bool, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Samples | Unreachable]:
    """Each round; `Unreachable` while the broker does not answer, and then rounds again. Raises it where it
    never answered, and `Refused` where it says no."""
    answered, tries = False, 0
    while True:
        try:
            with closing(client.samples(everybody=everybody)) as rounds:
                for found in rounds:
                    answered, tries = True, 0
                    yield found
            why = Unreachable("The broker ended the stream.", "It is asked again.")
        except Unreachable as error:
            why = error
        except Refused as error:
            # it starts again, and compares its book with the machine first
            if error.status != 503:
                raise
            why = Unreachable(error.sentence, error.next_step)
        if not answered:
            raise why
        yield why
        sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1
