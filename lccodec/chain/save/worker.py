"""The program of a worker: it saves for a chain in another process, or does tasks for a leader.

The first worker of a chain, its leader, has the chain's reference in its memory. It plans, writes
and commits. It divides the tasks of a save among itself and the workers that it starts.

Between two tasks it looks whether its client is still there. If it is not, it gives up what it does
and ends. So it leaves nothing behind, and what is committed is a whole checkpoint.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ... import errors
from ...container.disk.address import checked_place
from ...container.scalars import Json
from ...errors import WorkerError
from ...policy.presets import resolve_policy
from ...policy.record import NewestMode
from ...policy.roles import Role
from ...quantizers.registry import QUANTIZERS
from ...quantizers.weighted import Weighted
from ...workers.crew import Bench, Crew, Done, Processes, Request, Threads
from ...workers.messages import Channel
from ...workers.process import Worker, connect
from ..progress import no_progress
from ..read.crew import TASKS as DECODING_TASKS
from ..store.opening import writable_store
from .encode import TASKS as ENCODING_TASKS
from .plan import ArrayPlan, Estimate
from .saver import Saver
from .settings import LOG, Cadence, ReferenceKind, Settings
from .state_copy import Snapshot

_SECONDS_BETWEEN_BEATS: Final = 0.5
_SECONDS_BETWEEN_NEWS: Final = 0.05  # for eyes


@dataclass(frozen=True)
class Opening:
    """What a leader must know of its chain; as for `Chain`. The policy is JSON."""

    directory: str
    policy: Json
    roles: Mapping[str, Role] | None
    newest: NewestMode | None
    every: Cadence
    members: int
    worker_timeout: float
    reference: ReferenceKind = "values"


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life between two tasks; or, of so many arrays, how many are coded."""

    number: int  # of the request; 0 while the leader begins
    done: int = 0
    total: int = 0


@dataclass
class Report:
    """How a request went.

    Parameters
    ----------
    done
        The result, or the error.
    number
        The number of the request.
    warnings, records
        Texts of the warnings, and the log records: level and message.
    """

    done: Done
    number: int = 0
    warnings: list[str] = field(default_factory=list)
    records: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class GivesBackQuestion:
    """A question of the leader: whether what acts behind the saves gives a checkpoint back."""

    number: int  # of the request
    name: str


@dataclass(frozen=True)
class GivesBackAnswer:
    """The answer to a `GivesBackQuestion`."""

    number: int  # of the request
    gives_back: bool


class Abandoned(Exception):  # noqa: N818 - nothing went wrong
    """The client is gone."""


class Leader:
    """Saves for one chain, and says what a save would do.

    Parameters
    ----------
    channel
        To the client.
    opening
        The chain.
    """

    def __init__(self, channel: Channel, opening: Opening) -> None:
        self._channel = channel
        self._beaten = time.monotonic()
        self._number = 0  # of the request
        self._crew = make_crew(opening.members, self._heartbeat, opening.worker_timeout)
        store = writable_store(checked_place(opening.directory))
        store.call_between(self._heartbeat)
        policy = None if opening.policy is None else resolve_policy(opening.policy)
        self._settings = Settings(store, policy, opening.roles, opening.newest, opening.reference)
        self._saver = Saver(store, self._settings, opening.every, self._crew, self._gives_back)

    def close(self) -> None:
        """End the other workers."""
        self._crew.close()

    def answer(self, snapshot: Snapshot) -> Any:
        """Save a state, and return the bytes of its file; or return what a save would do."""
        self._number = snapshot.number
        if snapshot.resumed:
            self._settings.restored()
        self._settings.first, self._settings.judged = snapshot.first, snapshot.judged
        if snapshot.question == "save":
            tell = self._tell if snapshot.watched else no_progress
            return self._saver.save(snapshot.step, snapshot.state(), tell)
        plan = self._saver.plan(snapshot.state())
        if snapshot.question == "estimates":
            return plan.estimates()
        return plan.told()

    def _gives_back(self, name: str) -> bool:
        """Ask the client, which knows of parity and mirrors."""
        self._channel.send(GivesBackQuestion(self._number, name))
        try:
            told = self._channel.receive()
        except EOFError:
            raise Abandoned from None
        if not isinstance(told, GivesBackAnswer) or told.number != self._number:
            raise Abandoned
        return told.gives_back

    def _tell(self, done: int, total: int) -> None:
        """Tell the client how many arrays are coded: not after each, as there may be thousands."""
        if done == total or time.monotonic() - self._beaten > _SECONDS_BETWEEN_NEWS:
            self._beat(Heartbeat(self._number, done, total))

    def _heartbeat(self) -> None:
        """Tell the client that work goes on; give it up if the client is gone."""
        if self._channel.is_ended():
            raise Abandoned
        if time.monotonic() - self._beaten > _SECONDS_BETWEEN_BEATS:
            self._beat(Heartbeat(self._number))

    def _beat(self, beat: Heartbeat) -> None:
        self._beaten = time.monotonic()
        self._channel.send(beat)


def make_crew(members: int, heartbeat: Callable[[], None], worker_timeout: float) -> Crew:
    """Return a crew of this process and, for more than one member, of workers that are started.

    A worker that cannot be started is left out. The others do its share.
    """
    workers: list[Worker] = []
    with suppress(WorkerError):
        workers.extend(start_worker() for _ in range(members - 1))
    return Processes(workers, heartbeat, worker_timeout) if workers else Threads(heartbeat=heartbeat)


def start_worker(inherited: Iterable[int] = ()) -> Worker:
    """Start this program; `inherited` are descriptors that it keeps open."""
    return Worker(__name__, TYPES, ERRORS, inherited)


class _Recorder(logging.Handler):
    """Keeps the records of a request."""

    def __init__(self, records: list[tuple[int, str]]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append((record.levelno, record.getMessage()))


def answer(request: Callable[[], Any], number: int) -> Report:
    """Return how a request of some number went, with all that it told."""
    report = Report(Done(), number)
    handler = _Recorder(report.records)
    LOG.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                report.done = Done(request())
            except Exception as error:
                if isinstance(error, Abandoned):
                    raise
                report.done = Done(error=error)
    finally:
        LOG.removeHandler(handler)
    report.warnings.extend(str(warning.message) for warning in caught)
    return report


def serve(channel: Channel) -> None:
    """Do what the other side of a channel asks for, until it is gone."""
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    bench: Bench = {}
    leader: Leader | None = None
    try:
        while True:
            message = channel.receive()
            if isinstance(message, Opening):
                channel.passes_on = True
                leader = Leader(channel, message)
            elif leader is not None and isinstance(message, Snapshot):
                report = answer(partial(leader.answer, message), message.number)
                channel.send(report)
                if isinstance(report.done.error, errors.WorkerError):
                    return  # the next request finds fresh workers
            else:
                channel.send(message.done(bench))
            del message  # or its arrays would stay
    except (EOFError, Abandoned):
        pass
    finally:
        channel.close()
        if leader is not None:
            leader.close()


#: What messages may have.
TYPES: Final = (
    *(Opening, Cadence, Snapshot, Heartbeat, GivesBackQuestion, GivesBackAnswer, Report),
    *(Request, Done, ArrayPlan, Estimate, Weighted),
    *ENCODING_TASKS,
    *DECODING_TASKS,
    *QUANTIZERS.values(),
)
ERRORS: Final = (
    *(e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.LccodecError)),
    MemoryError,
)


def main() -> None:
    """Serve the socket whose descriptor is the argument."""
    serve(connect(int(sys.argv[1]), TYPES, ERRORS))
