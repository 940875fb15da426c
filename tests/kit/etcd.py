"""A real etcd of one member or several; its log is in its folder."""

import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.missing import needed
from tests.kit.ports import free_ports
from tests.kit.waiting import until


class Etcd:
    """The members; urls: one a member. certificate: clients need it, with its key beside it as key.pem."""

    def __init__(self, folder: Path, count: int = 1, certificate: Path | None = None) -> None:
        self._folder = folder
        self._certificate = certificate
        ports = free_ports(2 * count)
        scheme = "http" if certificate is None else "https"
        self.urls = [f"{scheme}://127.0.0.1:{port}" for port in ports[:count]]
        self._peers = [f"http://127.0.0.1:{port}" for port in ports[count:]]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    def start(self, *numbers: int) -> None:
        """Start members, all by default, and wait until they answer."""
        for number in numbers or range(len(self.urls)):
            cluster = ",".join(f"m{n}={peer}" for n, peer in enumerate(self._peers))
            with (self._folder / f"etcd-{number}.log").open("ab") as log:
                self._processes[number] = subprocess.Popen(
                    [
                        needed("etcd", "etcd-server"),
                        f"--name=m{number}",
                        f"--data-dir={self._folder / f'm{number}'}",
                        f"--listen-client-urls={self.urls[number]}",
                        f"--advertise-client-urls={self.urls[number]}",
                        f"--listen-peer-urls={self._peers[number]}",
                        f"--initial-advertise-peer-urls={self._peers[number]}",
                        f"--initial-cluster={cluster}",
                        "--unsafe-no-fsync",
                        *self._tls_words(),
                    ],
                    stdout=log,
                    stderr=log,
                )
        until(lambda: all(map(self._is_healthy, self.urls)), "etcd answers", ignoring=OSError)

    def _tls_words(self) -> list[str]:
        if self._certificate is None:
            return []
        return [
            "--client-cert-auth",
            f"--trusted-ca-file={self._certificate}",
            f"--cert-file={self._certificate}",
            f"--key-file={self._certificate.with_name('key.pem')}",
        ]

    def _is_healthy(self, url: str) -> bool:
        tls = None
        if self._certificate is not None:
            tls = ssl.create_default_context(cafile=self._certificate)
            tls.load_cert_chain(self._certificate, self._certificate.with_name("key.pem"))
        with urllib.request.urlopen(f"{url}/health", timeout=2, context=tls) as answer:
            return b'"true"' in answer.read()

    def kill(self, *numbers: int) -> None:
        """kill -9 of members, all by default."""
        for number in numbers or range(len(self.urls)):
            process = self._processes[number]
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait()
                self._processes[number] = None

    def lose_data(self) -> None:
        """Delete what all members have kept; they must not run."""
        for number in range(len(self.urls)):
            shutil.rmtree(self._folder / f"m{number}")


@contextmanager
def etcd_of(folder: Path, count: int = 1, certificate: Path | None = None) -> Iterator[Etcd]:
    """Start etcd; where it is missing the test ends (missing.py)."""
    etcd = Etcd(folder, count, certificate)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.kill()
