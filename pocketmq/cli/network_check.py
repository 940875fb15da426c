"""Why a client cannot reach a broker: the checks of `pocketmq doctor net`.

A client gets routes from a name server and then connects to the addresses that the brokers have registered.
So an address that is valid only inside a container gives "connect to 172.17.0.2:10911 failed" at the client,
the most frequent question of RocketMQ's users. Run it where the clients run.
"""

from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from pocketmq.cli.address import is_loopback, is_wildcard
from pocketmq.cli.ask import ask
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.settings import parse_properties

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


def check_network(name_servers: list[str], timeout_ms: int = 3_000) -> list[NetworkFinding]:
    """Query the name servers, then connect to every broker that they know."""
    findings: list[NetworkFinding] = []
    brokers: dict[str, tuple[str, str]] = {}
    for address in name_servers:
        try:
            answer = ask(address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=timeout_ms)
            table = fastjson.loads(answer.body)["brokerAddrTable"]
        except (PocketMQError, KeyError, TypeError) as error:
            findings.append(
                NetworkFinding(
                    f"name server {address}",
                    False,
                    str(error),
                    "is `pocketmq up` (or `pocketmq namesrv`) running there, listening on an address "
                    "that this machine can reach (--host), with no firewall between?",
                )
            )
            continue
        count = len(table)
        findings.append(
            NetworkFinding(
                f"name server {address}",
                count > 0,
                f"answers and knows {count} broker{'' if count == 1 else 's'}",
                ""
                if count
                else "start a broker with --namesrv naming this address; its log says "
                "'not registered' and why",
            )
        )
        for name, data in table.items():
            for broker_address in data["brokerAddrs"].values():
                brokers[broker_address] = (name, address)
    for address, (name, name_server) in sorted(brokers.items()):
        findings.append(_check_broker(address, name, name_server, timeout_ms))
    return findings


def _check_broker(address: str, name: str, name_server: str, timeout_ms: int) -> NetworkFinding:
    what = f"broker {name} at {address}"
    suspicion = _suspicion(address, name_server)
    try:
        own = _name_of(address, timeout_ms)
    except PocketMQError as error:
        advice = _better_address(address, name, name_server, timeout_ms)
        return NetworkFinding(what, False, str(error), advice or suspicion or _unreachable(address))
    if own is not None and own != name:
        return NetworkFinding(
            what,
            False,
            f"another broker answers at that address: {own}",
            _better_address(address, name, name_server, timeout_ms)
            or "two brokers advertise the same address, or this machine connects to itself: "
            + _SET_ADDRESS,
        )
    if suspicion and _is_loopback(address):
        return NetworkFinding(what, False, "answers, but only on this machine", suspicion)
    return NetworkFinding(what, True, "answers")


def _name_of(address: str, timeout_ms: int) -> str | None:
    """Return the name of the broker that answers there. Raises: PocketMQError if none does."""
    answer = ask(address, RequestCode.GET_BROKER_CONFIG, timeout_ms=timeout_ms)
    config = parse_properties(bytes(answer.body).decode("utf-8", "replace"))
    return config.get("brokerName")


def _better_address(address: str, name: str, name_server: str, timeout_ms: int) -> str:
    """Advise to advertise the name server's host, if that broker answers there."""
    host, _, _ = name_server.rpartition(":")
    port = address.rpartition(":")[2]
    if address == f"{host}:{port}":
        return ""
    try:
        found = _name_of(f"{host}:{port}", timeout_ms)
    except PocketMQError:
        return ""
    if found != name:
        return ""
    return (
        f"the same broker does answer at {host}:{port}, where its name server is: set brokerIP1={host} in "
        f"its configuration (or POCKETMQ_BROKER_IP1={host}), and clients like this one reach it"
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
