"""The two forms of a loop: which one runs, and what happens where one cannot."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import loops
from lccodec.loops import Kernel, kernel

from ..support.programs import run_program

CALL = """
import numpy as np, sys, time, warnings
import lccodec
from lccodec.loops import search
def call():
    return search.histogram(np.arange(9, dtype=np.uint8))[:9].tolist() == [1] * 9
"""


def program(text: str, **environment: str) -> list[str]:
    """The words that a program of its own prints, which may use both forms."""
    run = run_program(CALL + text, env={**os.environ, "LCCODEC_KERNELS": "", **environment})
    assert run.stderr == ""
    return run.stdout.split()


def test_without_the_compiler_a_kernel_is_its_numpy_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_IN_USE", False)
    assert kernel(np.negative, np.positive, "in i4") is np.negative


def test_the_variable_has_two_values() -> None:
    text = "try: import lccodec.loops\nexcept ValueError as error: print(error)"
    run = run_program(text, env={**os.environ, "LCCODEC_KERNELS": "fast"})
    assert run.stdout.strip() == "LCCODEC_KERNELS must be numpy or numba; got 'fast'"


def test_numpy_alone_can_be_asked_for() -> None:
    text = "for _ in range(99): call()\nprint(lccodec.kernels(), 'numba' in sys.modules)"
    assert program(text, LCCODEC_KERNELS="numpy") == ["numpy", "False"]


def test_a_broken_compiler_leaves_numpy_with_one_warning(tmp_path: Path) -> None:
    """It is there, and raises when it is imported."""
    (tmp_path / "numba.py").write_text("raise OSError('no such instruction')")
    text = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(99): call()
    until = time.monotonic() + 60
    while not caught and time.monotonic() < until: call()
    print(call(), len(caught), lccodec.kernels())
    print(caught[0].category.__name__, "no such instruction" in str(caught[0].message))
"""
    path = os.pathsep.join([str(tmp_path), str(Path(lccodec.__file__).parents[1])])
    for wanted in ("", "numba"):
        words = program(text, LCCODEC_KERNELS=wanted, PYTHONPATH=path)
        assert words == ["True", "1", "numpy", "LccodecWarning", "True"]


@pytest.mark.slow
def test_the_compiled_form_takes_over() -> None:
    import numba  # noqa: F401

    # A process of low priority compiles: beside others it may take minutes.
    text = """
print('numba' in sys.modules, call(), lccodec.kernels())
until = time.monotonic() + 240
while lccodec.kernels() == "numpy" and time.monotonic() < until: call()
print(call(), lccodec.kernels())
"""
    assert program(text) == ["False", "True", "numpy", "True", "numba"]


@pytest.mark.slow
def test_arrays_of_any_memory_are_taken() -> None:
    import numba  # noqa: F401

    def size(words: np.ndarray, out: np.ndarray) -> int:
        out[0] = words[0]
        return words.size

    made = Kernel(size, size, ("in u4, out u1",))
    made.compile()
    words = np.frombuffer(bytes(41), np.uint8)[1:].view(np.uint32)
    assert not words.flags.writeable and not words.flags.aligned
    assert made(words, np.zeros(3, np.uint8)) == 10
    assert made.is_compiled()


@pytest.mark.slow
def test_products_are_rounded_before_they_are_added() -> None:
    """A fused multiply-add would leave what rounding takes; every machine writes the same bytes."""
    import numba  # noqa: F401

    def sums(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
        for place in range(a.size):
            out[place] = a[place] * b[place] + c[place]

    a, b = np.random.default_rng(0).random((2, 1000))
    out = np.ones(1000)
    made = Kernel(sums, sums, ("in f8, in f8, in f8, out f8",))
    made.compile()
    made(a, b, -(a * b), out)
    assert not out.any()


def test_no_thread_waits_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may save while its own thread compiles: in another thread."""
    lock, kernel = threading.Lock(), loops.Kernel(np.negative, np.negative, ())
    for name, part in {"_compiling": lock, "_WANTED": "numba", "_preparation": loops._Preparation()}.items():
        monkeypatch.setattr(loops, name, part)
    with lock:
        assert kernel(3) == -3
    assert kernel.is_waiting()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_fork_beside_a_compiler_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    lock, kernel = threading.Lock(), loops.Kernel(np.negative, np.negative, ())
    parts = {"_compiling": lock, "_kernels": [kernel], "_preparation": loops._Preparation()}
    for name, part in parts.items():
        monkeypatch.setattr(loops, name, part)
    if elsewhere:  # in the child, the thread that holds it is gone
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
    loops.after_fork()
    assert kernel.is_waiting() != elsewhere
    if elsewhere:
        assert kernel(3) == -3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".nbi", ".nbc"])
def test_what_is_damaged_in_the_cache_is_compiled_again(tmp_path: Path, kind: str) -> None:
    """As after a power loss: half of a file is there. It is there whole afterwards."""
    pytest.importorskip("numba")
    environment = {"LCCODEC_KERNELS": "numba", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert program("print(call(), lccodec.kernels())", **environment) == ["True", "numba"]
    for path in tmp_path.rglob(f"*{kind}"):
        os.truncate(path, path.stat().st_size // 2)
    whole = {path: path.stat().st_size for path in tmp_path.rglob("*.nb?")}
    assert whole
    assert program("print(call(), lccodec.kernels())", **environment) == ["True", "numba"]
    assert any(path.stat().st_size > size for path, size in whole.items())
