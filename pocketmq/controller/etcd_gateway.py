"""EtcdGateway: the calls of etcd's JSON gateway (3.4 and later) that a controller needs; its texts are str.

A call goes to the endpoint that answered last, and to the others when it cannot be connected to. One whose
answer is lost may have been carried out: it is not repeated, and raises.
"""

import base64
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

_TIMEOUT_S = 2.0


class EtcdError(OSError):
    """etcd does not answer, or refuses; the call may have been carried out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class EtcdKey:
    """One key. create, mod: revisions; lease: 0 without one."""

    key: str
    value: str
    create: int
    mod: int
    lease: int


class EtcdGateway:
    """One client, in use as a context."""

    def __init__(self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        """endpoints: URLs, `http://10.0.0.1:2379`."""
        self._endpoints = [each.rstrip("/") for each in endpoints]
        # A proxy of the environment is for the web.
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT_S, trust_env=False, verify=True if tls is None else tls
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        reasons = []
        for endpoint in list(self._endpoints):
            try:
                answer = await self._client.post(f"{endpoint}/v3/{path}", json=body)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                reasons.append(f"{endpoint}: {error or type(error).__name__}")
                self._endpoints.append(self._endpoints.pop(0))
                continue
            except httpx.HTTPError as error:
                self._endpoints.append(self._endpoints.pop(0))
                raise EtcdError(f"{endpoint}: {error or type(error).__name__}") from error
            return _parsed(endpoint, answer)
        raise EtcdError("; ".join(reasons) or "no endpoint is given")

    # ------------------------------------------------------------ leases

    async def grant(self, ttl_s: int) -> int:
        """Return a new lease. Raises: EtcdError."""
        return int((await self._call("lease/grant", {"TTL": ttl_s}))["ID"])

    async def keep_alive(self, lease: int) -> int:
        """Return for how many seconds a lease lives from now on; 0: it has ended. Raises: EtcdError."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0))

    async def revoke(self, lease: int) -> None:
        """End a lease, and delete its keys. Raises: EtcdError."""
        await self._call("lease/revoke", {"ID": str(lease)})

    # ------------------------------------------------------------ keys

    async def under(self, prefix: str) -> list[EtcdKey]:
        """Return the keys that begin so, as the majority has them now. Raises: EtcdError."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = await self._call("kv/range", {"key": _coded(prefix), "range_end": _coded(end)})
        return [_entry(each) for each in answer.get("kvs", ())]

    async def change(
        self, conditions: Sequence[Mapping[str, Any]], act: Mapping[str, Any], else_get: str
    ) -> tuple[int, EtcdKey | None]:
        """Do `act` if all conditions hold. Returns: (its revision, None); else (0, the key `else_get`).

        Raises: EtcdError.
        """
        answer = await self._call(
            "kv/txn",
            {
                "compare": list(conditions),
                "success": [act],
                "failure": [{"requestRange": {"key": _coded(else_get)}}],
            },
        )
        if answer.get("succeeded"):
            return int(answer["header"]["revision"]), None
        found = answer["responses"][0]["response_range"].get("kvs", ())
        return 0, _entry(found[0]) if found else None


def created_at(key: str, revision: int) -> dict[str, Any]:
    """Return the condition that a key was made at a revision; 0: it is absent."""
    return {"target": "CREATE", "key": _coded(key), "createRevision": str(revision)}


def modified_at(key: str, revision: int) -> dict[str, Any]:
    """Return the condition that a key was last changed at a revision; 0: it is absent."""
    return {"target": "MOD", "key": _coded(key), "modRevision": str(revision)}


def put(key: str, value: str, lease: int = 0) -> dict[str, Any]:
    """Return the act that sets a key."""
    return {"requestPut": {"key": _coded(key), "value": _coded(value), "lease": str(lease)}}


def delete(key: str) -> dict[str, Any]:
    """Return the act that deletes a key."""
    return {"requestDeleteRange": {"key": _coded(key)}}


def _parsed(endpoint: str, answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError as error:
        raise EtcdError(f"{endpoint}: HTTP {answer.status_code}, and no JSON") from error
    if answer.status_code != httpx.codes.OK or not isinstance(found, dict):
        reason = found.get("message") or found.get("error") if isinstance(found, dict) else found
        raise EtcdError(f"{endpoint}: HTTP {answer.status_code} {str(reason)[:200]}")
    return found


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _text(coded: str) -> str:
    return base64.b64decode(coded).decode()


def _entry(data: Mapping[str, Any]) -> EtcdKey:
    return EtcdKey(
        _text(data["key"]),
        _text(data.get("value", "")),
        int(data["create_revision"]),
        int(data["mod_revision"]),
        int(data.get("lease", 0)),
    )
