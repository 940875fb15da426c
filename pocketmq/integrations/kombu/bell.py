"""Bell: wakes the thread that consumes, by a socket that its event loop or a wait can watch."""

import selectors
import socket


class Bell:
    """One side rings, in any thread; the other waits, and quiets it before it looks for what there is."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._is_rung = False

    def fileno(self) -> int:
        """The descriptor that is readable while the bell rings."""
        return self._ours.fileno()

    def ring(self) -> None:
        """Wake the waiting side; once is enough until it quiets the bell."""
        if self._is_rung:
            return
        self._is_rung = True
        try:
            self._theirs.send(b"\0")
        except OSError:
            # Closed meanwhile, or full: then it rings.
            return

    def quiet(self) -> None:
        """Stop ringing. What is rung for from now on rings again."""
        try:
            self._ours.recv(4096)
        except BlockingIOError:
            pass
        self._is_rung = False

    def wait(self, seconds: float | None) -> bool:
        """Wait until it rings, and quiet it; False if it does not in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            if not selector.select(seconds):
                return False
        self.quiet()
        return True

    def close(self) -> None:
        """Close both ends."""
        self._ours.close()
        self._theirs.close()
