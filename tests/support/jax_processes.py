"""Programs that use JAX in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def run(code: str, *arguments: str, devices: int = 1) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = with_devices(devices)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def with_devices(count: int) -> str:
    """Return the flags of XLA of the tests, and that the CPU is so many devices."""
    return f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output
