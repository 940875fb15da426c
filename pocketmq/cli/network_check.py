"""Why a client cannot reach a broker: the checks of `pocketmq doctor net`.

A client gets routes from a name server and then connects to the addresses that the brokers have registered.
So an address that is valid only inside a container gives "connect to 172.17.0.2:10911 failed" at the client,
the most frequent question of RocketMQ's users. Run it where the clients run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from pocketmq.cli.address import is_loopback, is_wildcard
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.settings import parse_properties
from pocketmq.remoting.transport.blocking import ask

# What container engines give their networks unless told otherwise.
_CONTAINER_NETWORKS = tuple(
    ip_network(text) for text in ("172.16.0.0/12", "10.88.0.0/16", "192.168.65.0/24")
)
_SET_ADDRESS = (
    "set brokerIP1 in the broker's configuration (or POCKETMQ_BROKER_IP1, or --set brokerIP1=...) to "
    "an address that this machine can reach, and publish the broker's port under the same number"
)


@dataclass(frozen=True, slots=True)
class NetworkFinding:
    """The result of one check: what, whether it is ok, what was found, what to do."""

    check: str
    ok: bool
    found: str
    advice: str = ""


class NetworkCheck:
    """The checks, with one way to connect: the keywords of `ask`."""

    def __init__(self, how: Mapping[str, Any]) -> None:
        self._how = how

    def run(self, name_servers: list[str]) -> list[NetworkFinding]:
        """Query the name servers, then connect to every broker that they know."""
        findings: list[NetworkFinding] = []
        brokers: dict[str, tuple[str, str]] = {}
        for address in name_servers:
            finding, table = self._name_server(address)
            findings.append(finding)
            for name, data in table.items():
                for broker_address in data["brokerAddrs"].values():
                    brokers[broker_address] = (name, address)
        for address, (name, name_server) in sorted(brokers.items()):
            findings.append(self._broker(address, name, name_server))
        return findings

    def _name_server(self, address: str) -> tuple[NetworkFinding, dict[str, Any]]:
        """Return what was found, and the brokers that it knows, by name."""
        what = f"name server {address}"
        try:
            answer = ask(address, RequestCode.GET_BROKER_CLUSTER_INFO, **self._how)
            table = fastjson.loads(answer.body)["brokerAddrTable"]
        except (PocketMQError, KeyError, TypeError) as error:
            advice = (
                "is `pocketmq up` (or `pocketmq namesrv`) running there, listening on an address that this "
                "machine can reach (--host), with no firewall between?"
            )
            if not self._how.get("tls"):
                advice += " If it takes TLS only: --tls-ca, or POCKETMQ_TLS_ENABLE=true"
            return NetworkFinding(what, False, getattr(error, "fact", str(error)), advice), {}
        count = len(table)
        found = f"answers and knows {count} broker{'' if count == 1 else 's'}"
        advice = "start a broker with --namesrv naming this address; its log says 'not registered' and why"
        return NetworkFinding(what, count > 0, found, "" if count else advice), table

    def _broker(self, address: str, name: str, name_server: str) -> NetworkFinding:
        what = f"broker {name} at {address}"
        suspicion = _suspicion(address, name_server)
        try:
            own = self._name_of(address)
        except PocketMQError as error:
            advice = self._better_address(address, name, name_server)
            advice = advice or suspicion or _unreachable(address)
            return NetworkFinding(what, False, getattr(error, "fact", str(error)), advice)
        if own is not None and own != name:
            return NetworkFinding(
                what,
                False,
                f"another broker answers at that address: {own}",
                self._better_address(address, name, name_server)
                or "two brokers advertise the same address, or this machine connects to itself: "
                + _SET_ADDRESS,
            )
        if suspicion and _is_loopback(address):
            return NetworkFinding(what, False, "answers, but only on this machine", suspicion)
        return NetworkFinding(what, True, "answers")

    def _name_of(self, address: str) -> str | None:
        """Return the name of the broker that answers there. Raises: PocketMQError if none does."""
        answer = ask(address, RequestCode.GET_BROKER_CONFIG, **self._how)
        config = parse_properties(bytes(answer.body).decode("utf-8", "replace"))
        return config.get("brokerName")

    def _better_address(self, address: str, name: str, name_server: str) -> str:
        """Advise to advertise the name server's host, if that broker answers there."""
        host, _, _ = name_server.rpartition(":")
        port = address.rpartition(":")[2]
        if address == f"{host}:{port}":
            return ""
        try:
            found = self._name_of(f"{host}:{port}")
        except PocketMQError:
            return ""
        if found != name:
            return ""
        return (
            f"the same broker does answer at {host}:{port}, where its name server is: set brokerIP1={host} "
            f"in its configuration (or POCKETMQ_BROKER_IP1={host}), and clients like this one reach it"
        )


def _suspicion(address: str, name_server: str) -> str:
    host = address.rpartition(":")[0].strip("[]")
    if is_wildcard(host):
        return f"{host} is not an address that can be connected to: {_SET_ADDRESS}"
    if _is_loopback(address) and not _is_loopback(name_server):
        return (
            "the broker advertises a loopback address, so every other machine connects to itself: start it "
            f"with --host 0.0.0.0, and {_SET_ADDRESS}"
        )
    return ""


def _unreachable(address: str) -> str:
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ip_address(host)
    except ValueError:
        return f"is {host!r} a name that this machine resolves? If not: {_SET_ADDRESS}"
    if any(ip in network for network in _CONTAINER_NETWORKS):
        return (
            f"{host} looks like a container's own address, which only containers in the same "
            f"network can reach: "
            f"{_SET_ADDRESS}"
        )
    return (
        "is the broker running, and does a firewall or a missing port publication stand between? If "
        f"the address is not the broker's: {_SET_ADDRESS}"
    )


def _is_loopback(address: str) -> bool:
    return is_loopback(address.rpartition(":")[0])
