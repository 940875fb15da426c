"""Options that several commands share."""

from typing import Annotated

import typer

from pocketmq.cli import contexts

DEFAULT_NAMESRV = "127.0.0.1:9876"


def default_name_server() -> str:
    """Return POCKETMQ_NAMESRV_ADDR, else NAMESRV_ADDR, also of a context, else this machine's address."""
    said = contexts.environment()
    return said.get("POCKETMQ_NAMESRV_ADDR") or said.get("NAMESRV_ADDR") or DEFAULT_NAMESRV


NameServer = Annotated[
    str,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="ADDR",
        help="Name servers, 'host:port;host:port' (default: NAMESRV_ADDR, the context's, or 127.0.0.1:9876).",
        default_factory=default_name_server,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
All = Annotated[bool, typer.Option("--all", "-a", help="Include those of the system.")]
Cluster = Annotated[str | None, typer.Option(help="Only in this cluster.")]
Broker = Annotated[str | None, typer.Option(help="Only on this broker: its name or host:port.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of a topic.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of a consumer group.")]
