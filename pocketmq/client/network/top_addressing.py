"""TopAddressing: name servers looked up by HTTP, for sites that move them (wire.md 4.2).

    name_server="http://config.example:8080/rocketmq/nsaddr"    ->  GET, answered by "a:9876;b:9876"

The first line of the answer counts. It is queried when the client is created and every two minutes from then
on; if that fails, the known addresses stay. Source: DefaultTopAddressing, MQClientInstance, 4.9.7.
"""

import urllib.parse

from pocketmq.client.errors import TransientError

LOOKUP_INTERVAL_MS = 120_000
FIRST_LOOKUP_MS = 10_000
_TIMEOUT_S = 3.0
_ANSWER_SIZE_MAX = 65_536


class NameServersNotFound(TransientError):
    """The look-up URL returned no name server addresses."""

    def __init__(self, url: str, why: object) -> None:
        super().__init__(
            f"no name server is known: {url} named none ({why}). Its answer must be one line such as "
            "host:9876;other:9876"
        )


def is_lookup(name_server: str) -> bool:
    """Return True if this is a URL to look up addresses, not an address itself.

    >>> is_lookup("http://config:8080/rocketmq/nsaddr"), is_lookup("http://host:9876")
    (True, False)
    """
    parts = urllib.parse.urlsplit(name_server)
    return parts.scheme in ("http", "https") and len(parts.path) > 1


def look_up(url: str) -> str:
    """Return the addresses, as one text. Blocks for at most three seconds. Raises: NameServersNotFound."""
    # Imported lazily: with an explicit address no HTTP client is needed.
    import urllib.request
    from http.client import HTTPException
    from urllib.error import HTTPError

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            text = answer.read(_ANSWER_SIZE_MAX).decode("utf-8")
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        if isinstance(error, HTTPError):
            # It holds the answer, with its socket; Python 3.14 complains of one that is never closed.
            error.close()
        raise NameServersNotFound(url, error) from error
    lines = text.strip().splitlines()
    if not lines or not lines[0].strip():
        raise NameServersNotFound(url, "an empty answer")
    return str(lines[0].strip())
