"""Session: the user and their rights; login and logout."""

from typing import Any

from pocketmq.console.api.request import ApiRequest
from pocketmq.console.security import Session
from pocketmq.console.state import Console
from pocketmq.remoting.codes import release


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    call.new_session = call.session
    return _content(console, call.session)


async def log_in(console: Console, call: ApiRequest) -> dict[str, Any]:
    user = call.body.text("user")
    password = call.body.text("password")
    session = console.security.log_in(call.session, user, password, call.peer)
    call.did("login", {"user": user})
    call.new_session = session
    return _content(console, session)


async def log_out(console: Console, call: ApiRequest) -> dict[str, Any]:
    call.did("logout", {"user": call.session.user})
    console.security.end(call.session)
    call.new_session = console.security.begin()
    return _content(console, call.new_session)


def _content(console: Console, session: Session) -> dict[str, Any]:
    security = console.security
    return {
        "user": session.user,
        "loginRequired": security.login_required,
        "readOnly": security.read_only,
        "reason": security.reason,
        "csrfToken": security.csrf_token(session),
        "version": release(),
        "now": console.clock.now_ms(),
        "nameServers": list(console.admin.name_servers),
    }
