"""Options of the commands that account for a group's messages."""

from typing import Annotated

import typer

Topic = Annotated[str | None, typer.Option(help="Only this topic.")]
Since = Annotated[
    str | None, typer.Option(help="Only messages stored since: now, 2h (ago), 2026-11-21T12:00.")
]
Listed = Annotated[
    str | None,
    typer.Option(
        "--list", metavar="STATE", help="List the messages in a state, such as lost or waiting."
    ),
]
