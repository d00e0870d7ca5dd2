"""A server of the web on this machine that has files in memory, and answers as it is told."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec

_PIECE = bytes(1 << 16)


@dataclass
class Site:
    """What a server has, and how it answers.

    Attributes
    ----------
    files
        The bytes of files by path.
    rule
        Says by method, path and range what becomes of a request: nothing for a sound answer, or one
        of these. ``"flood"`` sends bytes without end, ``"long"`` a few more than asked for,
        ``"short"`` fewer, ``"whole"`` knows no ranges, ``"other"`` sends another range,
        ``"packed"`` a compressed answer, ``"drip"`` a byte now and then, ``"stall"`` nothing. A
        number is a status. What begins with ``http`` or a slash is led to.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    rule: Callable[[str, str, str], str | None] = lambda *_: None
    address: str = ""
    requests: list[str] = field(default_factory=list)
    sent: int = 0

    def copy(self, place: str, path: str) -> None:
        """Take the files of an address of ``memory://``, below a path."""
        files, base = fsspec.filesystem("memory"), place.removeprefix("memory:/")
        self.files |= {path + key.removeprefix(base): files.cat_file(key) for key in files.find(base)}

    def page(self, path: str) -> bytes | None:
        """The page of a folder: links to what lies in it."""
        below = path.rstrip("/") + "/"
        names = {key.removeprefix(below) for key in self.files if key.startswith(below)}
        direct = {name.partition("/")[0] + ("/" if "/" in name else "") for name in names}
        links = "".join(f'<a href="{name}">{name}</a>\n' for name in sorted(direct))
        return f'<a href="../">..</a><a href="?C=N">N</a>{links}'.encode() if names else None


@contextmanager
def web_server() -> Iterator[Site]:
    """A server that is there for a while."""
    site, over = Site(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            with suppress(ConnectionError, TimeoutError):
                self._serve()

        do_HEAD = do_GET  # noqa: N815

        def _serve(self) -> None:
            asked = self.headers.get("Range", "")
            site.requests.append(f"{self.command} {self.path} {asked}".strip())
            fault = site.rule(self.command, self.path, asked) or ""
            if fault.startswith(("http", "/")):
                self._answer(302, b"", Location=fault)
            elif fault.isdecimal():
                self._answer(int(fault), b"")
            elif fault == "stall":
                over.wait()
            elif self.path in site.files:
                self._file(site.files[self.path], asked, fault)
            elif (page := site.page(self.path)) is None:
                self._answer(404, b"")
            elif fault in ("flood", "drip"):
                self._stream(200, page, fault)
            else:
                self._answer(200, page, **{"Content-Type": "text/html"})

        def _file(self, data: bytes, asked: str, fault: str) -> None:
            if not asked or fault == "whole":
                self._answer(200, data)
                return
            start, last = map(int, asked.removeprefix("bytes=").split("-"))
            start += fault == "other"
            part = data[start : last + 1]
            names = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"}
            if not part:
                self._answer(416, b"")
            elif fault in ("flood", "drip"):
                self._stream(206, part, fault)
            elif fault == "packed":
                self._answer(206, gzip.compress(bytes(20 << 20)), **names, **{"Content-Encoding": "gzip"})
            else:
                more = data[last + 1 : last + 9] or b"more"
                sent = {"long": part + more, "short": part[: len(part) // 2]}.get(fault, part)
                self._answer(206, sent, **names)

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
                site.sent += len(body)

        def _stream(self, status: int, body: bytes, fault: str) -> None:
            """Send a body, and then more of it without end."""
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while not over.is_set():
                for piece in (body, _PIECE) if fault == "flood" else (b"<",):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    site.sent += len(piece)
                if fault == "drip":
                    time.sleep(0.05)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    site.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield site
    finally:
        over.set()
        server.shutdown()
        server.server_close()
