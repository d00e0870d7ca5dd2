"""The loops of the codec, each in two forms: of NumPy always, and compiled with the extra `fast`.

A module has the loops of one subject: arrays go in and come out. Others stand beside their NumPy
form in the folders above. Both forms have the same parameters and the same result, byte for byte.
Whoever calls one does not know which form runs. Indices are checked before a loop is entered: a
compiled one looks at no bound.

The NumPy form runs until the compiled one is ready. A thread gets that from Numba's cache: beside
the modules, or in the user's folder where that cannot be written. What is not there is compiled by
a process of low priority, since a compiler would hold the interpreter's lock for seconds.

The variable LCCODEC_KERNELS is `numpy` for the NumPy forms alone, or `numba` to wait for the
compiled ones. Imports only the modules that lie in no folder.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..errors import ArgumentError, warn
from ..parallel import start_thread

if TYPE_CHECKING:
    import subprocess

Form = TypeVar("Form", bound=Callable[..., Any])

#: Calls of kernels after which they are made ready: a short program ends before that pays.
_CALLS_BEFORE: Final = 256
#: The end of the program waits so long, in seconds, for the thread: Numba must not be cut.
_SECONDS_TO_END: Final = 10.0
#: Compiling leaves the cores to the program.
_NICENESS: Final = 10

_WANTED: Final = os.environ.get("LCCODEC_KERNELS", "")
if _WANTED not in ("", "numpy", "numba"):
    raise ArgumentError(f"LCCODEC_KERNELS must be numpy or numba; got {_WANTED!r}")
_IN_USE: Final = _WANTED != "numpy" and sys.byteorder == "little" and find_spec("numba") is not None


class Kernel:
    """A NumPy form, and the loop that takes its place once it is compiled.

    Parameters
    ----------
    numpy_form, loop
        Functions of the same parameters. The loop is plain Python for the compiler. Without a NumPy
        form, it is called only where `is_compiled` says so.
    signatures
        The types of the parameters, for each set of them: see `kernel`.
    """

    def __init__(self, numpy_form: Any, loop: Callable[..., Any], signatures: tuple[str, ...]) -> None:
        self.numpy_form, self.loop, self.signatures = numpy_form, loop, signatures
        self._run: Callable[..., Any] = self._first
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Return what the form that is ready makes of the arguments."""
        return self._run(*arguments)

    def _first(self, *arguments: Any) -> Any:
        self.begin()
        return (self.numpy_form if self.is_waiting() else self._run)(*arguments)

    def begin(self) -> bool:
        """Make kernels ready, or let that go on; return whether this one is compiled."""
        if self.is_waiting():
            if _WANTED == "numba" and _preparation.working:
                _preparation.attempt(self.compile)
            else:
                _preparation.begin()
            if _preparation.error is not None:
                _preparation.give_up()
        return self.is_compiled()

    def use(self, form: Callable[..., Any]) -> None:
        """Let a form run from now on."""
        self._run = form

    def is_waiting(self) -> bool:
        """Return whether no form was chosen yet."""
        return self._run == self._first

    def is_compiled(self) -> bool:
        """Return whether the compiled form runs."""
        return self._run is self._dispatcher is not None

    def is_cached(self) -> bool:
        """Load what the cache has of the compiled form; return whether that is all.

        What cannot be loaded, as after a power loss, is taken out of the cache.
        """
        made = self._dispatcher = self._dispatcher or _dispatcher(self.loop)
        try:
            found = [made._cache.load_overload(_types(each), made.targetctx) for each in self.signatures]
        except Exception:  # of any library that reads a part of it
            made._cache.flush()
            self._dispatcher = None
            return False
        for code in found:
            if code is not None and not any(code.signature.args == args for args in made.overloads):
                made.add_overload(code)
        return all(code is not None for code in found)

    def compile(self) -> None:
        """Load the compiled form, or compile it and write it into the cache; it is used then.

        Nothing is done while another thread compiles. To wait for it might take for ever: a signal
        handler that saves may have interrupted it.
        """
        if not _compiling.acquire(blocking=False):
            return
        try:
            if self.is_waiting():
                self.is_cached()
                made = self._dispatcher = self._dispatcher or _dispatcher(self.loop)
                for each in self.signatures:
                    made.compile(_types(each))
                made.disable_compile()
                self.use(made)
        finally:
            _compiling.release()


def kernel(numpy_form: Form | None, loop: Form, *signatures: str) -> Form:
    """Return a function that runs `loop`, compiled; `numpy_form` until it is, or without the extra.

    A signature has the types of the parameters: ``"in u4, out u1, i8"`` are an array of uint32 that
    is read, one of uint8 that is written, and an integer. Arrays are 1-D, contiguous and of the
    host's byte order; they may be unaligned. ``"4 in u1"`` is a tuple of four such arrays. Python's
    integers are ``i8``, floats ``f8``, and bools ``b1``.
    """
    if not _IN_USE:
        return cast("Form", numpy_form)
    made = Kernel(numpy_form, loop, signatures)
    _kernels.append(made)
    return cast("Form", made)


def inlined(function: Form) -> Form:
    """Let the loops of its module call a function: it is compiled with them."""
    _inlined.append(function)
    return function


_kernels: list[Kernel] = []
_inlined: list[Callable[..., Any]] = []  # that Numba does not know yet
_compiling: Final = threading.Lock()  # held while a kernel is compiled


def kernels() -> str:
    """Return which form of the loops runs: ``"numba"`` once they are compiled, else ``"numpy"``."""
    return "numba" if any(each.is_compiled() for each in _kernels) else "numpy"


@contextmanager
def numpy_forms() -> Iterator[None]:
    """Let the NumPy forms run, also where others are compiled: to compare both."""
    before = [(each, each._run) for each in _kernels]
    for each, _ in before:
        each.use(each.numpy_form)
    try:
        yield
    finally:
        for each, form in before:
            each.use(form)


def is_compiled(function: Callable[..., Any]) -> bool:
    """Return whether a kernel is compiled, for what would take less time then; begin with it."""
    return isinstance(function, Kernel) and function.begin()


def _dispatcher(loop: Callable[..., Any]) -> Any:
    import numba
    from numba.extending import register_jitable

    while _inlined:
        register_jitable(_inlined.pop())
    # Code with bounds that are looked at would be found in the cache in place of that without.
    checked = bool(os.environ.get("NUMBA_BOUNDSCHECK"))
    return numba.njit(nogil=True, fastmath=False, error_model="numpy", cache=not checked)(loop)


def _types(signature: str) -> tuple[Any, ...]:
    """Return what Numba calls the types of parameters."""
    numba: Any = importlib.import_module("numba")
    import numpy as np

    found = []
    for words in map(str.split, signature.split(",")):
        item = numba.from_dtype(np.dtype(words[-1]))
        if len(words) > 1:
            item = numba.types.Array(item, 1, "C", readonly=words[-2] == "in", aligned=False)
        found.append(item if len(words) < 3 else numba.types.UniTuple(item, int(words[0])))
    return tuple(found)


class _Preparation:
    """What makes kernels ready beside the program.

    Attributes
    ----------
    working
        Whether they can be.
    error
        Why they cannot be, until a caller is warned.
    """

    def __init__(self) -> None:
        self.working = True
        self.error: Exception | None = None
        self._calls = 0
        self._runs = False
        self._owner = 0  # process whose thread it is: a forked one has none
        self._ending = False
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._compiler: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start the thread, once there were some calls."""
        self._calls += 1
        if self._calls < _CALLS_BEFORE or self._runs or not self.working:
            return
        self._runs, self._ended = True, SimpleQueue()
        if start_thread(self._make_ready) and self._owner != os.getpid():
            self._owner = os.getpid()
            atexit.register(self._end)

    def attempt(self, call: Callable[[], object]) -> None:
        """Make a call; an error is kept."""
        try:
            call()
        except Exception as error:  # of a package that is broken, or does not know the processor
            self.error = error

    def give_up(self) -> None:
        """Let the NumPy forms run, with a warning."""
        for each in _kernels:
            each.use(each.numpy_form)
        self.working, error, self.error = False, self.error, None
        warn(f"compiled kernels cannot be used, and NumPy is slower: {type(error).__name__}: {error}")

    def _make_ready(self) -> None:
        ended = self._ended
        self.attempt(self._load)
        self._runs = self.error is not None or self._ending
        ended.put(None)

    def _load(self) -> None:
        some = [each for each in _kernels if each.is_waiting()]
        if not all(self._ending or each.is_cached() for each in some):
            self._compile(sorted({each.loop.__module__ for each in some}))
        for each in some:
            if not self._ending:
                each.compile()

    def _compile(self, modules: list[str]) -> None:
        """Let a process compile the kernels of some modules into the cache."""
        import subprocess

        if self._ending or not sys.executable:
            return
        path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
        self._compiler = subprocess.Popen(  # noqa: S603 - this interpreter, and our own module
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()", *modules],
            env={**os.environ, "PYTHONPATH": path, "LCCODEC_KERNELS": "numba"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the terminal is not for it
        )
        if self._compiler.wait() and not self._ending:
            raise RuntimeError(f"the compiler ended with code {self._compiler.returncode}")

    def _end(self) -> None:
        """Stop before the program ends: what Numba has compiled must not go while it loads."""
        if self._owner != os.getpid():
            return
        self._ending = True
        if self._compiler is not None:
            self._compiler.kill()
        try:
            self._ended.get(timeout=_SECONDS_TO_END)
        except Empty:
            return


_preparation: Final = _Preparation()


def after_fork() -> None:
    """Let the NumPy forms run where another thread was compiling: its locks are never released."""
    if _compiling.acquire(blocking=False):
        _compiling.release()
        return
    _preparation.working = False
    for each in _kernels:
        if each.is_waiting():
            each.use(each.numpy_form)


if _IN_USE and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)


def main() -> None:
    """Compile the kernels of the modules that are named, unless they are in the cache."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for each in _kernels:
        each.compile()
