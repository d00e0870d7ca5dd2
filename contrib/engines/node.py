"""One process a node: patches the local model, then tells the engines to load it again.

``python node.py RUN MODEL --engine http://localhost:30000 [--engine ...] [--prefix model]``

SGLang reloads by ``POST /update_weights_from_disk``. The lock of the model's directory lets several
of these processes run on a node: one of them patches, the others find that it is done.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Callable

from lccodec import ChainError
from lccodec.adapters.weights import Pulled, pull


def reload(engine: str, model: str, step: int, timeout: float = 600) -> None:
    """Let an engine load a model from the disk; raise an error unless it says that it did."""
    body = json.dumps({"model_path": model, "weight_version": str(step)}).encode()
    address, headers = f"{engine.rstrip('/')}/update_weights_from_disk", {"Content-Type": "application/json"}
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"not the address of an engine: {engine}")
    request = urllib.request.Request(address, body, headers)  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
        document = json.load(answer)
    if not document.get("success", False):
        raise RuntimeError(f"{engine}: {document.get('message')}")


def once(run: str, model: str, engines: list[str], prefix: str, start: int | None) -> Pulled | None:
    """Bring a model and its engines to the newest step; ``None`` if they have it."""
    found = pull(run, model, prefix=prefix, start=start)
    if not found.names:
        return None
    for engine in engines:
        reload(engine, model, found.step)
    return found


def main(words: list[str] | None = None, wait: Callable[[float], None] = time.sleep) -> None:
    """Go on until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("model")
    parser.add_argument("--engine", action="append", default=[], metavar="URL")
    parser.add_argument("--prefix", default="model")
    parser.add_argument("--start", type=int, help="the step that the model has")
    options = parser.parse_args(words)
    while True:
        try:
            found = once(options.run, options.model, options.engine, options.prefix, options.start)
        except ChainError as error:  # nothing was saved yet
            print(error, file=sys.stderr)
        else:
            if found is not None:
                print(f"step {found.step}: {len(found.names)} tensors", flush=True)
        wait(0.5)


if __name__ == "__main__":
    main()
