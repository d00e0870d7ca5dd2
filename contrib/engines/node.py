"""One process a node: patches the local model, then tells the engines to load it again.

``python node.py RUN MODEL --engine http://localhost:30000 [--engine ...] [--prefix model]``

SGLang reloads by ``POST /update_weights_from_disk``. An engine that does not confirm a step is told
again until it does. A process tells all its engines when it begins, whatever was confirmed before,
and an engine that reports another version at ``GET /model_info`` (it was started again) as well.

Several of these processes may run on a node, each with its own engines or with the same ones: one
of them patches the model, the others see that it is done. Only one at a time tells an engine, and
it tells what the model has at that moment. So an engine ends at the newest step.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lccodec import LccodecError
from lccodec.adapters.weights import Pulled, Puller

POLL_SECONDS = 0.5
LOOK_SECONDS = 10.0  # between two looks at what an engine says that it has
REFUSALS = (OSError, http.client.HTTPException, ValueError, RuntimeError)  # what a busy engine may cause


def call(engine: str, path: str, document: Any = None, timeout: float = 600) -> Any:
    """Call an engine; return the JSON document that it answers with."""
    address = f"{engine.rstrip('/')}/{path}"
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 - `Engine` checks it
    with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
        return json.load(answer)


class Engine:
    """An engine, and what it has confirmed.

    The note of what was confirmed lies beside the model. It is also the lock of those who tell the
    engine, which the kernel releases if its process is killed.
    """

    def __init__(self, url: str, model: Path) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"not the address of an engine: {url}")
        self.url, self.model = url.rstrip("/"), model
        self._note = model / ".lccodec" / f"engine-{hashlib.sha256(self.url.encode()).hexdigest()[:16]}"
        self._is_told = False  # by this process
        self._version: Any = None  # what the engine said that it has when it had confirmed
        self._looked = time.monotonic()

    def bring(self, newest: Callable[[], Pulled]) -> Pulled | None:
        """Let the engine load the model unless it has it; return what it was told, if anything.

        Raises
        ------
        OSError, http.client.HTTPException, ValueError, RuntimeError
            If the engine does not answer, or does not confirm. It is to be told again.
        """
        with self._locked() as descriptor:
            now = newest()  # the lock may have been waited for
            wanted = {"step": now.step, "root": now.root}
            if self._is_told and _noted(descriptor) == wanted and not self._has_lost():
                return None
            os.ftruncate(descriptor, 0)  # if this process is killed, the engine is told again
            document = {"model_path": str(self.model), "weight_version": str(now.step)}
            answer = call(self.url, "update_weights_from_disk", document)
            if not (isinstance(answer, dict) and answer.get("success", False)):
                raise RuntimeError(f"{self.url}: {answer}")
            os.pwrite(descriptor, json.dumps(wanted).encode(), 0)
            self._is_told, self._version = True, self._reported()
            return now

    def _has_lost(self) -> bool:
        """Whether the engine says another version than when it confirmed: it was started again.

        Another process may have told it in between. Then it is told once more, which is no harm.
        """
        return time.monotonic() - self._looked >= LOOK_SECONDS and self._reported() != self._version

    def _reported(self) -> Any:
        """Return which version the engine says that it has; ``None`` if it does not say."""
        self._looked = time.monotonic()
        try:
            answer = call(self.url, "model_info", timeout=10)
        except (urllib.error.HTTPError, ValueError):
            return None
        return answer.get("weight_version") if isinstance(answer, dict) else None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = os.open(self._note, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _noted(descriptor: int) -> Any:
    """Return what an engine has confirmed; ``None`` if that is not known."""
    try:
        return json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return None


def round_of(puller: Puller, engines: list[Engine], said: dict[str, str]) -> None:
    """Bring the model to the newest step, and each engine to what the model has."""
    pulled = puller.pull()
    if pulled.names:
        print(f"step {pulled.step}: {len(pulled.names)} tensors", flush=True)
    for engine in engines:
        try:
            told = engine.bring(puller.pull)
        except REFUSALS as error:
            if said.get(engine.url) != str(error):  # once, not at every look
                print(f"{engine.url} is told again: {error}", file=sys.stderr, flush=True)
            said[engine.url] = str(error)
            continue
        if told is not None:
            print(f"{engine.url}: step {told.step}", flush=True)
        said.pop(engine.url, None)


def main(words: list[str] | None = None, wait: Callable[[float], None] = time.sleep) -> None:
    """Go on until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("model")
    parser.add_argument("--engine", action="append", default=[], metavar="URL")
    parser.add_argument("--prefix", default="model")
    parser.add_argument("--start", type=int, help="the step that the model has")
    options = parser.parse_args(words)
    engines, said = [Engine(url, Path(options.model)) for url in options.engine], dict[str, str]()
    with Puller(options.run, options.model, prefix=options.prefix, start=options.start) as puller:
        while True:
            try:
                round_of(puller, engines, said)
            except LccodecError as error:  # nothing was saved yet, or a file is away for a while
                if said.get("") != str(error):
                    print(error, file=sys.stderr, flush=True)
                said[""] = str(error)
            wait(POLL_SECONDS)


if __name__ == "__main__":
    main()
