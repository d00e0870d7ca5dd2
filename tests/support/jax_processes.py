"""Programs that use JAX in processes of their own."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

QUICK_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def be_quick() -> None:
    """Let JAX compile quickly, here and in programs that are started: it is most of its time."""
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    os.environ["XLA_FLAGS"] = with_quick_flags(os.environ.get("XLA_FLAGS", ""))


def run(code: str, *arguments: str, devices: int = 1) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = with_devices(devices)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def with_quick_flags(flags: str) -> str:
    """Return flags of XLA, and those with which it compiles in a fifth of the time.

    Only where its version knows them: XLA ends the process at a flag that it does not know. Of two
    flags of one name it takes the last, so those that are given come last.
    """
    try:
        major, minor = map(int, version("jaxlib").split(".")[:2])
    except PackageNotFoundError:
        return flags
    if (major, minor) != (0, 10) or QUICK_FLAGS in flags:  # a worker of pytest-xdist has them
        return flags
    return f"{QUICK_FLAGS} {flags}".strip()


def with_devices(count: int) -> str:
    """Return the flags of XLA of the tests, and that the CPU is so many devices."""
    return f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"


@contextmanager
def coordinator() -> Iterator[str]:
    """An address for the first of several processes, which no other program gets meanwhile.

    It is held by a socket that does not listen. That of JAX shares the port, as gRPC always does.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("localhost", 0))
        yield f"localhost:{held.getsockname()[1]}"


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output
