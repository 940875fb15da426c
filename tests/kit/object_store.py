"""An object store: moto speaks S3 on this machine, and counts its requests."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Bucket:
    """A bucket, and the requests that it has answered."""

    def __init__(self, port: int) -> None:
        self.requests: list[tuple[str, str]] = []
        #: Where it listens.
        self.endpoint = f"http://127.0.0.1:{port}"
        self._place = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"

    def uri(self, path: str) -> str:
        return f"s3://key:secret@lake/{path}?{self._place}"

    def counted(self) -> int:
        """Requests since the last look."""
        count = len(self.requests)
        self.requests.clear()
        return count


@contextmanager
def object_store() -> Iterator[Bucket]:
    """A server with the bucket `lake`."""
    moto = pytest.importorskip("moto.server")
    from werkzeug.serving import make_server

    app = moto.DomainDispatcherApplication(moto.create_backend_app)
    seen: list[tuple[str, str]] = []

    def counting(environ: dict[str, Any], start: Any) -> Any:
        seen.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return app(environ, start)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, counting, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made = Bucket(server.server_port)
    made.requests = seen
    from pyarrow import fs

    file_system, _ = fs.FileSystem.from_uri(f"{made.uri('x')}&allow_bucket_creation=true")
    file_system.create_dir("lake")
    yield made
    server.shutdown()
    thread.join()
    server.server_close()
    logging.getLogger("werkzeug").setLevel(logging.NOTSET)
