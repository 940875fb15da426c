"""viewed_by: the console as one session sees it."""

from dataclasses import replace

from pocketmq.console.security import Session
from pocketmq.console.state import Console
from pocketmq.console.users.seen import SeenFigures
from pocketmq.console.users.sight import Sight


async def viewed_by(console: Console, session: Session) -> Console:
    """Return the console with the connections and the sight of a session's user.

    Raises: ApiError 401 if a user of the brokers is not logged in any more.
    """
    if console.seats is None:
        return console
    seat = await console.seats.of(session)
    view = seat.view
    if not isinstance(view, Console):
        view = replace(console, admin=seat.admin, message_types=None)
        seat.view = view
    if view.sight != seat.sight or view.figures is console.figures:
        view.sight = seat.sight
        view.figures = seen_by(console, seat.sight)
    return view


def seen_by(console: Console, sight: Sight) -> SeenFigures:
    """Return the figures that a sight shows."""
    return SeenFigures(console.sampler, sight)
