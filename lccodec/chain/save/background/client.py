"""A chain's client of its workers: it starts the leader, asks, and waits for the answer.

A request has a number, which all that is said to it carries. A leader whose answer is not heard to
its end, for whatever reason, is given up: what it says next would be taken for another answer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ....errors import StorageError, WorkerError
from ....frame.checked import Checked
from ....parallel import has_lock
from ....policy.policy import Policy
from ....quantizers.base import Quantizer
from ....quantizers.registry import QUANTIZERS
from ....workers.crew import Crew, Threads
from ....workers.process import Worker
from ...progress import Tell
from ...read.crew import Restorers
from ...store.claim import Claim
from ...store.store import WritableStore
from ..settings import LOG, Every, Settings, WorkerOptions
from .state_copy import Snapshot
from .worker import Beat, Doubt, Opening, Report, Told, make_crew, start_worker


def opening_of(store: WritableStore, settings: Settings, options: WorkerOptions, every: Every) -> Opening:
    """Return what a leader must know of a chain."""
    policy, roles, newest = settings.given
    written = None if policy is None else policy.to_json()
    members, worker_timeout = options.members, float(options.worker_timeout)
    told = str(store.path), written, roles, newest, every, members, worker_timeout
    return Opening(*told, settings.reference)


def crew_of(options: WorkerOptions) -> Crew:
    """Return the crew for restores in this process: threads only help without a global lock."""
    if not has_lock():
        return Threads(options.members)
    return make_crew(options.members, lambda: None, options.worker_timeout)


def restorers_of(options: WorkerOptions) -> Restorers:
    """Return who decodes for a chain with workers."""
    return Restorers(options.members, partial(crew_of, options))


class Client:
    """The workers of a chain, started when they are needed, for one thread. Any may `kill` them.

    Parameters
    ----------
    store
        Where the chain is kept.
    opening
        What the leader must know of the chain.
    claim
        The claim on the chain, which the leader shares.
    comes_back
        As for `Saver`.
    """

    def __init__(
        self, store: WritableStore, opening: Opening, claim: Claim, comes_back: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._opening = opening
        self._claim = claim
        self._comes_back = comes_back
        self._worker: Worker | None = None
        self._process = os.getpid()
        self._number = 0  # of the last request
        self.started = False  # whether a leader could be started

    def request(self, message: Snapshot, tell: Tell) -> Report:
        """Return the leader's report on a request; raise ``WorkerError`` if it is gone.

        `tell` is told how many arrays are coded. If it is interrupted, so is the leader.
        """
        self._number += 1
        try:
            reply = self._reply(replace(message, number=self._number))
            while not isinstance(reply, Report):
                told = None
                if isinstance(reply, Doubt):
                    told = Told(self._number, self._comes_back(reply.name))
                elif reply.total:
                    tell(reply.done, reply.total)
                reply = self._reply(told)
        except WorkerError:
            raise
        except BaseException:
            self._lost("")
            raise
        if isinstance(reply.done.error, WorkerError):
            self._lost("")
        return reply

    def _reply(self, message: Snapshot | Told | None = None) -> Beat | Doubt | Report:
        """Return what the leader says next, after sending it a message, if any."""
        try:
            worker = self._leader()
            if message is not None:
                worker.channel.send(message)
            reply: Beat | Doubt | Report = worker.channel.receive()
        except TimeoutError:
            seconds = self._opening.worker_timeout
            raise self._lost(f"a worker has not answered for {seconds:g} seconds") from None
        except (EOFError, OSError, ValueError):
            raise self._lost("a worker is gone") from None
        is_early = isinstance(reply, Beat) and not reply.number  # it begins
        if reply.number != self._number and not is_early:
            self._lost("")
            raise self._lost(f"a worker has answered request {reply.number}, not {self._number}")
        return reply

    def close(self) -> None:
        """Let the workers end; the next request starts fresh ones."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def kill(self) -> None:
        """End the workers at once, whatever they do, and remove what they leave."""
        if (worker := self._worker) is not None:
            worker.kill()
            self._tidy()

    def _leader(self) -> Worker:
        if self._process != os.getpid():  # after a fork, the workers are the parent's
            self._worker, self._process = None, os.getpid()
        if self._worker is None:
            worker = start_worker(self._claim.descriptors)
            worker.ready()
            self._worker, self.started = worker, True
            self._worker.channel.limit(self._opening.worker_timeout)
            self._worker.channel.send(self._opening)
        return self._worker

    def _lost(self, message: str) -> WorkerError:
        worker, self._worker = self._worker, None
        if worker is not None:
            if message:
                message = f"{message}: it {worker.state()}"
            worker.kill()
        self._tidy()
        return WorkerError(f"{self._store.path}: {message}; the next save starts a fresh one")

    def _tidy(self) -> None:
        try:
            self._store.remove_stale()
        except StorageError as error:
            LOG.warning("%s", error)


def find_obstacle(policy: Policy) -> str | None:
    """Return why workers cannot save with a policy, in words; ``None`` if they can."""
    if not has_lock():
        return "threads do it, as the interpreter has no global lock"
    if not hasattr(socket, "send_fds"):
        return "this system does not pass memory from process to process"
    chosen = [*policy.roles.values(), *policy.patterns.values()]
    chosen += [] if isinstance(policy.keyframes, str) else policy.keyframes.values()
    if any(map(_has_check, chosen)):
        return "the check of `Checked` is a function of this process"
    own = [name for name in _quantizers(policy.to_json()) if not _is_ours(QUANTIZERS[name])]
    return f"they do not know the quantizer {own[0]}, which is your own" if own else None


def _has_check(quantizer: Quantizer) -> bool:
    """Return whether a quantizer, or the one in it, calls a function of the user."""
    then = getattr(quantizer, "then", None)
    own = isinstance(quantizer, Checked) and quantizer.check is not None
    return own or (isinstance(then, Quantizer) and _has_check(then))


def _quantizers(value: Any) -> Iterator[str]:
    """Yield the names of all quantizers in the JSON of a policy."""
    if isinstance(value, dict):
        if isinstance(name := value.get("quantizer"), str):
            yield name
        for item in value.values():
            yield from _quantizers(item)


def _is_ours(quantizer: type) -> bool:
    return quantizer.__module__.split(".")[0] == __name__.split(".")[0]
