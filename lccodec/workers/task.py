"""Tasks: what the members of a crew do, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from .memory import Arena

#: What a member has at hand: a task may leave something there for later ones.
Bench = dict[str, Any]


class Task(Protocol):
    """Something that any member of a crew can do."""

    def run(self, bench: Bench, /) -> Any:
        """Do it, and return the result."""


@runtime_checkable
class Writes(Task, Protocol):
    """A task that writes into arrays of this process, which workers do not see."""

    def staged(self, arena: Arena) -> Any:
        """Return the same task for a worker: it writes into shared memory, an arena."""

    def take(self, staged: Any, /) -> None:
        """Copy what a worker has written."""


@dataclass(frozen=True)
class Done:
    """The result of a task, or the error that it has raised; with the number of its request."""

    result: Any = None
    error: BaseException | None = None
    number: int = 0

    @classmethod
    def of(cls, task: Task, bench: Bench, number: int = 0) -> Done:
        """Do a task."""
        try:
            return cls(task.run(bench), number=number)
        except Exception as error:
            return cls(error=error, number=number)

    def value(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


@dataclass(frozen=True)
class Request:
    """A task for a worker; its result has the same number."""

    number: int
    task: Any

    def done(self, bench: Bench) -> Done:
        """Do the task, at the worker."""
        return Done.of(self.task, bench, self.number)
