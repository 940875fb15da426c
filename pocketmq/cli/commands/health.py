"""`pocketmq health`: do name server and broker answer? For an image's HEALTHCHECK and for scripts.

Exit code 0 if all of them answer, else 1. Plain code without typer: it runs every few seconds.
"""

import argparse
import itertools
import json
import os
import sys
from typing import Any, NoReturn

from pocketmq.cli import contexts
from pocketmq.cli.connecting import asking_options
from pocketmq.cli.exits import CannotBegin, ExitCode, one_line
from pocketmq.remoting import fastjson
from pocketmq.remoting.address_list import split_addresses
from pocketmq.remoting.codes import RequestCode, ResponseCode, response_name
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.blocking import ask

_NAMESRV = "127.0.0.1:9876"
_BROKER = "127.0.0.1:10911"
_WANTS_SIGNATURE = "AclException"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CannotBegin(f"{message}; see: {self.prog} --help")


def health(arguments: list[str]) -> ExitCode:
    """Check, print a line for each, and return the exit code. Raises: CannotBegin."""
    parser = _Parser(prog="pocketmq health", description="Ask whether the servers answer.")
    parser.add_argument(
        "--namesrv",
        "-n",
        metavar="ADDR",
        help="name servers, 'host:port;host:port' (default: NAMESRV_ADDR, the context's, or "
        f"{_NAMESRV}); - for none",
    )
    parser.add_argument(
        "--broker",
        metavar="ADDR",
        help="broker (default: those that the name server knows, if one is given or set, else "
        f"{_BROKER}); - for none",
    )
    parser.add_argument("--timeout-ms", type=int, default=3_000, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args(arguments)
    how = asking_options(options.timeout_ms)
    said = options.namesrv or _name_servers_set()
    namesrvs = _addresses(said or _port("NAMESRV", _NAMESRV))
    brokers = [options.broker or _port("BROKER", _BROKER)]
    if options.broker is None and said not in ("", "-"):
        found = [_brokers(each, how) for each in namesrvs]
        brokers = list(dict.fromkeys(itertools.chain.from_iterable(found)))
    asked = [("namesrv", each, RequestCode.GET_NAMESRV_CONFIG) for each in namesrvs]
    asked += [("broker", each, RequestCode.GET_BROKER_RUNTIME_INFO) for each in brokers]
    healthy = True
    rows: list[dict[str, Any]] = []
    for name, address, code in asked:
        if address == "-":
            continue
        findings: list[str] = []
        try:
            answer = ask(address, code, **how)
            # A broker that checks signatures is well when it wants one.
            well = answer.code == 0 or _WANTS_SIGNATURE in (answer.remark or "")
            said = "ok" if well else f"answers with {response_name(answer.code)}"
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                said = _other(name, address, "broker") or "is not a broker"
            if name == "broker" and answer.code == 0:
                said = _trouble(answer, address, how) or said
                findings = _findings(answer)
        except PocketMQError as error:
            said = "" if how["tls"] else _other(name, address)
            said = said or str(error)
        healthy = healthy and said == "ok"
        rows.append({"server": name, "address": address, "state": said, "findings": findings})
    if not brokers:
        healthy = False
        rows.append(
            {"server": "broker", "address": "-", "state": "none is registered", "findings": []}
        )
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        for row in rows:
            where = row["server"] if row["address"] == "-" else f"{row['server']} {row['address']}"
            sys.stdout.write(one_line(f"{where}: {row['state']}") + "\n")
            for finding in row["findings"]:
                sys.stdout.write("  " + one_line(finding) + "\n")
    return ExitCode.OK if healthy else ExitCode.FAILED


def _name_servers_set() -> str:
    """Return the name servers of the environment or the context, as every command reads them."""
    if said := os.environ.get("POCKETMQ_NAMESRV_ADDR"):
        return said
    return contexts.environment().get("NAMESRV_ADDR", "")


def _addresses(namesrv: str) -> list[str]:
    """Return the addresses of a list as the client reads it, whose imports would cost more than the check.

    >>> _addresses("mq1;http://mq2:9877")
    ['mq1:9876', 'mq2:9877']
    """
    found = [each.rpartition("/")[2] for each in split_addresses(namesrv)]
    return [each if ":" in each else f"{each}:9876" for each in found if each not in ("", "-")]


def _other(name: str, address: str, listens: str = "") -> str:
    """Return what listens where a name server should, if it is known."""
    if name != "namesrv":
        return ""
    import asyncio

    from pocketmq.remoting.errors import not_a_name_server
    from pocketmq.remoting.transport.probe import what_listens

    wrong = not_a_name_server(address, listens or asyncio.run(what_listens(address)))
    return "" if wrong is None else str(wrong)


def _brokers(namesrv: str, how: dict[str, Any]) -> list[str]:
    """Return the addresses that brokers have registered; none if the name server does not answer."""
    try:
        answer = ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, **how)
    except PocketMQError:
        return []
    table = fastjson.loads(answer.body)["brokerAddrTable"] if answer.code == 0 else {}
    return [address for each in table.values() for address in each["brokerAddrs"].values()]


def _trouble(answer: RemotingCommand, address: str, how: dict[str, Any]) -> str:
    """Return what the broker says is wrong with itself, or with its replicas; RocketMQ says neither."""
    if said := fastjson.loads(answer.body)["table"].get("trouble"):
        return str(said)
    answer = ask(address, RequestCode.GET_BROKER_HA_STATUS, **how)
    return str(json.loads(bytes(answer.body)).get("trouble") or "") if answer.code == 0 else ""


def _findings(answer: RemotingCommand) -> list[str]:
    """Return the damage to its store that a broker knows of and serves around; RocketMQ does not say."""
    said = fastjson.loads(answer.body)["table"].get("findings")
    return str(said).split("\n") if said else []


def _port(what: str, default: str) -> str:
    """Return the default address, with the port that the server's own variable sets."""
    port = os.environ.get(f"POCKETMQ_{what}_PORT")
    return f"127.0.0.1:{port}" if port else default
