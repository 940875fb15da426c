"""The pages of docs/ that are made from the code: python -m tools.reference_pages

    docs/configuration.md    the options of the servers, the environment, every setting
    docs/client-options.md   the options of the clients
    docs/compatibility.md    clients, request codes, mqadmin's commands, files: from the tables and the tests
    docs/json.md             the keys of `--json`, from tools/json_keys.py
    docs/store-findings.md   what can be wrong with a store, from pocketmq.store.findings

A test of the house compares the pages with what is made here (tests/house/test_docs.py), so a
setting, a code or a tested command that is new fails `make check` until this was run again.
"""

import argparse
import ast
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

from pocketmq import client
from pocketmq.admin.admin import AdminOptions
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.cli.mqadmin.table import COMMANDS as MQADMIN
from pocketmq.cli.mqadmin.table import MqCommand
from pocketmq.cli.servers.server_options import HELP, OPTIONS
from pocketmq.client import options
from pocketmq.client.transaction import TransactionOptions
from pocketmq.console.config import ConsoleConfig
from pocketmq.controller import ControllerConfig
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.schema import ROCKETMQ
from pocketmq.namesrv import NamesrvConfig
from pocketmq.remoting.requests import REQUESTS, AnsweringServer
from pocketmq.remoting.settings import Key, Settings
from pocketmq.remoting.transport.tls import TlsConfig
from pocketmq.store import StoreConfig
from pocketmq.store.findings import FINDINGS
from tools.json_keys import COMMANDS as JSON_KEYS
from tools.json_keys import SERVERS as JSON_OF_SERVERS

ROOT = Path(__file__).parents[1]
_CONFIGURATION = """\
# Configuration

{made}

PocketMQ needs no configuration. What can be set has RocketMQ's name wherever RocketMQ has it, and the unit
and the default of RocketMQ 4.9.7 unless the table says otherwise; a `broker.conf` of an Apache broker is
read as it is. Settings of things that PocketMQ does not have (thread pools, for one) are named in the log
once and change nothing. A wrong value ends the start with one line that says what is allowed.

## Where a value comes from

The first that has one: the command line (`--set NAME=VALUE` takes any setting), the environment
(`flushDiskType` is `POCKETMQ_FLUSH_DISK_TYPE` or `POCKETMQ_FLUSHDISKTYPE`; `NAMESRV_ADDR` is the name
server's address), the file of `--config`, the default. `pocketmq up --print-config` prints what results.

Settings with *yes* under *live* may be changed while the broker runs: `mqadmin updateBrokerConfig`, the
console. Such a change holds over restarts, in `config/changedSettings.json` of the data, until the same
setting gets another value in one of the places above. SIGHUP and `pocketmq cluster reload` read these
again. What else stands
there is the reason why it cannot."""
_COMPATIBILITY = """\
# What is compatible with what

{made}

PocketMQ reports version 4.9.7 and also answers the additional requests of 5.x clients where the table says
so. It writes the files of 4.9 and reads records of 5.x. Each line here comes from a table that the code
works with, or from a test that runs the official program.

## Official programs

Java clients 4.9.8 and 5.5.0, the Go client 2.1.2, ali-ons 3.12 for Node.js, `mqadmin` 4.9.7 and 5.5.0,
Apache's broker and name server, all unmodified. What is shown with them, in `tests/interop`:

{programs}

By hand, once, on 23 to 25 November 2026, most of them beside 4.9.7 or 5.5.0:

- 50 programs of `rocketmq-example` 5.5.0, and the Java clients over TLS
- the C++ client of March 2026 and its Python bindings 2.0.0 and 0.4.4
- the examples of the Go client 2.1.0 to 2.1.2, and of the gRPC SDKs for Go, Python and Rust of August 2026
- Spring's starters 2.2.3, 2.3.5 and (RocketMQ 5) 2.3.1, Spring Cloud Stream's binder 2023.0.1.2, Camel 4.8.0
- `rocketmq-openmessaging` 4.9.7, and RocketMQ Streams 1.1.1 with its topics made before

## Request codes of a broker

{count} codes are served:

{served}

The last column says what an account must be allowed where signatures are checked (`aclEnable`).

These are answered as RocketMQ answers what it does not know (code 3), for the reason given:

{refused}

{others} more are asked of name servers, or by brokers of clients; ours serve and ask them.

## Commands of mqadmin

Run by the official `mqadmin` against PocketMQ:

{commands}

## Our own mqadmin

The installation has a command `mqadmin`, too, with RocketMQ's names, letters and columns (also `mqbroker` and
`mqnamesrv`); it works against Apache brokers as well. A test holds its words against the official program's.

{own_commands}

Not served, and what to do instead:

{not_served}

## gRPC, for the SDKs of RocketMQ 5

What the port for gRPC serves ([more](grpc.md)).

{rpcs}

What differs from Apache's proxy 5.5.0:

{grpc_differences}

## Files

Recorded stores of real brokers, opened by PocketMQ; every message, offset and query is compared with what
the broker that wrote them served:

{stores}

The other way, stores that PocketMQ wrote are opened by the Java broker 4.9.7 after a clean stop and after
`kill -9`: `tests/interop/test_store_exchange.py`. With more than 1,000 topics or groups a clean stop is
wanted: a crash may leave the latest ones in `config/topics.json.changes` and
`subscriptionGroup.json.changes`, which only PocketMQ reads.
"""
_JSON = """\
# JSON for programs

{made}

Every command takes `--json`: it prints JSON on standard output and nothing else there. Errors and progress
are on standard error.

- **Keys** are in camelCase, without blanks, as in RocketMQ's JSON and the
  [console's API](../pocketmq/console/API.md). Headings of the tables for people may change; keys stay.
- **Values**: offsets and counts are numbers, sizes bytes, keys that end in `Ms` milliseconds, in `S` seconds
  (`inPerS`: per second). What is not known is `null`.
- **New keys** may come with a new version: ignore those that you do not know.
- **Exit codes**: 0, done; 1, something is wrong: the server refuses, a check has found something, or nothing
  was found; 2, the command could not begin: a wrong option, a port in use.

`queues[].min` is the key `min` of each object in the list `queues`. `{{}}` behind a key: an object whose keys
are names, of topics or settings, which are as they are. *maybe*: the key may be missing.

{commands}
"""
_MADE = "<!-- Made by `python -m tools.reference_pages`: change the code, not this page. -->"
# mqadmin's commands by day, and those that keep house.
_COMMANDS = frozenset(
    """
    updateTopic deleteTopic topicList topicRoute topicStatus topicClusterList updateTopicPerm
    updateOrderConf allocateMQ updateSubGroup deleteSubGroup consumerProgress consumerStatus
    consumerConnection getConsumerConfig resetOffsetByTime resetOffsetByTimeOld
    skipAccumulatedMessage cloneGroupOffset getConsumerStatus producer producerConnection
    sendMessage consumeMessage printMsg printMsgByQueue queryMsgById queryMsgByKey queryMsgByOffset
    queryMsgByUniqueKey queryMsgTraceById queryCq DecodeMessageId sendMsgStatus checkMsgSendRT
    clusterList clusterRT brokerStatus brokerConsumeStats statsAll getBrokerConfig
    updateBrokerConfig getNamesrvConfig updateNamesrvConfig wipeWritePerm addWritePerm
    updateKvConfig deleteKvConfig startMonitoring cleanExpiredCQ cleanUnusedTopic
    deleteExpiredCommitLog exportConfigs exportMetadata exportMetrics updateAclConfig
    deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr updateTopicList updateSubGroupList
    setConsumeMode haStatus
    """.split()  # noqa: SIM905
)


def main() -> None:
    for name, text in PAGES.items():
        (ROOT / "docs" / name).write_text(text(), encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# ------------------------------------------------------------ configuration


def configuration() -> str:
    """The text of docs/configuration.md."""
    groups = (
        ("The broker", "", BrokerConfig),
        ("The store", "", StoreConfig),
        ("The name server", "", NamesrvConfig),
        (
            "The controller",
            "Of `controller`, and of `namesrv` with `enableControllerInNamesrv=true`; see "
            "[failover](failover.md).",
            ControllerConfig,
        ),
        ("TLS", "Of broker and name server alike.", TlsConfig),
        ("The console", "Of `up` and `broker`; see [the console](console.md).", ConsoleConfig),
        (
            "The metrics port",
            "Beside the console's `/metrics`; of several brokers each takes the next port.",
            MetricsConfig,
        ),
        ("The gRPC port", "For the SDKs of RocketMQ 5; of `up` and `broker`.", GrpcConfig),
    )
    parts = [_CONFIGURATION.format(made=_MADE), "## Options of the servers\n\n" + _options()]
    for title, text, group in groups:
        head = f"## {title}\n\n" + (f"{text}\n\n" if text else "")
        parts.append(head + _settings(group))
    return "\n\n".join(parts) + "\n"


def _options() -> str:
    commands = "\n".join(f"- `pocketmq {role}`: {text}" for role, text in HELP.items())
    rows = [
        (
            " ".join(f"`{flag}`" for flag in option.flags)
            + (f" {option.metavar}" if option.metavar else ""),
            ", ".join(option.roles),
            option.help,
        )
        for option in OPTIONS
        if option.help != argparse.SUPPRESS
    ]
    return f"{commands}\n\n{table(('option', 'of', 'what it does'), rows)}"


def _settings(group: type[Settings]) -> str:
    rows = []
    for name, known in sorted(group.keys().items(), key=lambda item: item[0].lower()):
        default = known.format(known.default)
        rows.append(
            (
                f"`{name}`",
                f"`{default}`" if default else "",
                _allowed(known),
                "yes" if known.runtime else group.FIXED.get(name, ""),
                known.help,
            )
        )
    return table(("setting", "default", "allowed", "live", "what it does"), rows)


def _allowed(known: Key) -> str:
    if known.choices:
        return ", ".join(f"`{choice}`" for choice in known.choices)
    if known.type is bool:
        return "`true`, `false`"
    if known.type not in (int, float):
        return ""
    ends = (known.min, known.max)
    words = {
        (True, True): f"{known.min} to {known.max}",
        (True, False): f"from {known.min}",
        (False, True): f"to {known.max}",
        (False, False): "a number",
    }[ends[0] is not None, ends[1] is not None]
    return f"{words} {known.unit}".strip()


# ------------------------------------------------------------ compatibility


def compatibility() -> str:
    """The text of docs/compatibility.md."""
    served, refused, others = _request_codes()
    return _COMPATIBILITY.format(
        made=_MADE,
        programs=table(("tests", "what they show"), _programs()),
        count=len(served),
        served=table(("code", "name", "needs"), served),
        refused=table(("codes", "why not"), refused),
        others=others,
        commands=table(("command", "words compared with the real broker's"), _mqadmin_commands()),
        own_commands=table(
            ("command", "letters", "the same in PocketMQ's words"),
            (
                (
                    each.name,
                    _letters(each),
                    f"`pocketmq {each.instead}`" if each.instead else each.why,
                )
                for each in MQADMIN
                if each.module
            ),
        ),
        not_served=table(
            ("command", "instead"),
            (
                (each.name, f"`pocketmq {each.instead}`" if each.instead else each.why)
                for each in MQADMIN
                if not each.module
            ),
        ),
        rpcs=table(("call", "form"), _rpcs()),
        grpc_differences=_section("grpc.md", "What differs from the proxy"),
        stores=table(("store", "written by", "state"), _stores()),
    )


def _rpcs() -> Iterator[tuple[str, str]]:
    """The calls of the service for RocketMQ 5's SDKs."""
    for name, method in ROCKETMQ.methods.items():
        both = method.asks_stream and method.answers_stream
        yield name, "both ways" if both else "a stream" if method.answers_stream else ""


def _section(page: str, title: str) -> str:
    """What stands under a heading of another page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0].strip()


def _letters(command: MqCommand) -> str:
    """The options of a command of mqadmin; those that must be given without brackets."""
    shown = (
        (f"-{each.letter}" if each.letter != each.name else f"--{each.name}", each.required)
        for each in command.options
    )
    return " ".join(flag if required else f"[{flag}]" for flag, required in shown)


def _programs() -> Iterator[tuple[str, str]]:
    """Each file of tests/interop, and the first sentence of what it says of itself."""
    for path in sorted((ROOT / "tests" / "interop").glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
        yield f"`{path.name}`", said


def _request_codes() -> tuple[list[tuple[str, str, str]], list[tuple[str, str]], int]:
    """(code, name, needs) of what is served, (codes, reason) of what is not, how many are not a broker's."""
    rows = [REQUESTS[code] for code in sorted(REQUESTS)]
    served = [
        (str(int(row.code)), row.code.name, str(row.access or "an administrator"))
        for row in rows
        if row.server & AnsweringServer.BROKER
    ]
    by_reason: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if not row.server:
            by_reason[row.why].append(f"{int(row.code)} {row.code.name}")
    refused = [(", ".join(names), why) for why, names in sorted(by_reason.items())]
    others = len(rows) - len(served) - sum(map(len, by_reason.values()))
    return served, refused, others


def _mqadmin_commands() -> list[tuple[str, str]]:
    """What the tests call, from their source: the first word of a call, and the table of steps."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests" / "interop").glob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mqadmin" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            word = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                word = node.args[0] if node.func.id == "admin" and node.args else None
            elif isinstance(node, ast.Tuple) and node.elts:
                word = node.elts[0]
            if isinstance(word, ast.Constant) and word.value in _COMMANDS:
                found[str(word.value)].add(path.name)
    return [
        (f"`{name}`", "yes" if "test_mqadmin_compare.py" in files else "")
        for name, files in sorted(found.items())
    ]


def _stores() -> Iterator[tuple[str, str, str]]:
    for path in sorted((ROOT / "tests" / "golden" / "data" / "stores").glob("*.manifest.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            manifest = json.load(file)
        yield f"`{manifest['name']}`", f"broker {manifest['broker']}", str(manifest["notes"])


_CLIENT_OPTIONS = """\
# Options of the clients

{made}

Keyword arguments of the clients of [`pocketmq.client`](client.md) and of their blocking twins in
`pocketmq.client.sync`. Times are in ms. `group` comes first and is the only one that may be given
without its name."""


def client_options() -> str:
    """The text of docs/client-options.md."""
    parts = [_CLIENT_OPTIONS.format(made=_MADE)]
    for title, kind, base in (
        ("All clients and `Admin`", options.ClientOptions, None),
        ("`Admin`, besides", AdminOptions, options.ClientOptions),
        ("All clients", options.GroupOptions, options.ClientOptions),
        ("`Producer`, besides", options.ProducerOptions, options.GroupOptions),
        ("`TransactionProducer`, besides", TransactionOptions, options.ProducerOptions),
        ("`PushConsumer` and `LitePullConsumer`", options.ConsumerOptions, options.GroupOptions),
        ("`PushConsumer`, besides", options.PushConsumerOptions, options.ConsumerOptions),
        ("`LitePullConsumer`, besides", options.LitePullConsumerOptions, options.ConsumerOptions),
        ("`SimpleConsumer`, besides", options.SimpleConsumerOptions, options.GroupOptions),
    ):
        known = [] if base is None else _option_rows(base)
        rows = [row for row in _option_rows(kind) if row not in known]
        parts.append(f"## {title}\n\n" + table(("name", "default", "what it says"), rows))
    return "\n\n".join(parts) + "\n"


def _option_rows(kind: type[Any]) -> list[tuple[str, str, str]]:
    rows = []
    for each in fields(kind):
        if each.init:
            said: tuple[object, ...] = getattr(each.type, "__metadata__", ())
            text = next(word for word in said if isinstance(word, str))
            for low, high in (limit for limit in said if isinstance(limit, options.OptionRange)):
                text += f"; {low} or more" if high is None else f"; {low} to {high}"
            default = "needed" if each.default is MISSING else _option_default(each.default)
            rows.append((f"`{each.name}`", default, text))
    return rows


def _option_default(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, Enum):
        return f"`{value.name}`"
    if isinstance(value, bool | int | str):
        return f"`{value!r}`"
    public = [name for name in client.__all__ if getattr(client, name) is value]
    return f"`{public[0]}`" if public else ""


# The pages by their files' names in docs/.
# ------------------------------------------------------------ JSON for programs


def json_page() -> str:
    commands = sorted({**JSON_KEYS, **JSON_OF_SERVERS}.items())
    return _JSON.format(made=_MADE, commands="\n\n".join(_json_command(*each) for each in commands))


_JSON_FORMS = {"{}": "An object.", "[]": "A list of objects.", "-": "An object a line."}


def _json_command(name: str, keys: Mapping[str, str]) -> str:
    """The section of one command."""
    first = next(iter(keys))
    if first in _JSON_FORMS:
        form = "A list" if first == "[]" else "An object"
        return f"## {name}\n\n{form}: {keys[first]}."
    rows = [_json_row(*each) for each in keys.items()]
    form = _JSON_FORMS[first.partition(".")[0]]
    return f"## {name}\n\n{form}\n\n{table(('key', ''), rows)}"


def _json_row(key: str, words: str) -> tuple[str, str]:
    shown = key.partition(".")[2].removesuffix("?").replace("{*}", "").removesuffix("[]")
    return f"`{shown}`", f"*maybe*: {words}" if key.endswith("?") else words


_STORE_FINDINGS = """\
# What can be wrong with a store

{made}

`pocketmq store verify DATA` checks every file of a store, of PocketMQ or Apache RocketMQ, without changing
it. Each finding has a code, and the row of that code says who mends it: the next *start* of PocketMQ,
`pocketmq store repair DATA` while no broker runs, or an operator. A start logs its findings with the same
codes; `pocketmq health` and `/health` show damage that a running broker serves around, and stay at "ok": a
restart would mend nothing. `--json` has the codes ([keys](json.md#store-verify)); `info` alone leaves the
exit code at 0.

A start *leaves* damage that only costs a part: it serves the rest. It *cuts* a log of RocketMQ where that is
damaged, as RocketMQ does, with a copy in `dropped`. It *refuses* a store that it could not serve without
harm, as a repair does, and changes nothing.

{rows}

Not looked at: the units of `consumequeue_ext` (`enableConsumeQueueExt`), files of pops and transactions
beside the log, and queues in RocksDB.
"""


def store_findings() -> str:
    head = ("code", "severity", "what is wrong", "a start", "`store repair`", "what to do")
    rows = [
        (f"`{row.code}`", row.severity, row.what, row.start, row.repair, row.advice)
        for row in FINDINGS.values()
    ]
    return _STORE_FINDINGS.format(made=_MADE, rows=table(head, rows))


PAGES = {
    "store-findings.md": store_findings,
    "json.md": json_page,
    "client-options.md": client_options,
    "configuration.md": configuration,
    "compatibility.md": compatibility,
}


if __name__ == "__main__":
    main()
