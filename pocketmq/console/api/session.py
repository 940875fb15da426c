"""Session: the user and their rights; login and logout."""

from typing import Any

from pocketmq.console.api.request import ApiRequest
from pocketmq.console.security import Session
from pocketmq.console.state import Console
from pocketmq.console.users.sight import UserRole
from pocketmq.remoting.codes import release


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    call.new_session = call.session
    return await _content(console, call.session)


async def log_in(console: Console, call: ApiRequest) -> dict[str, Any]:
    user = call.body.text("user")
    password = call.body.text("password")
    security = console.security
    if console.seats is None:
        session = security.log_in(call.session, user, password, call.peer)
    else:
        with security.attempt(call.peer):
            seat = await console.seats.prove(user, password)
        console.seats.leave(call.session)
        session = security.enter(call.session, user)
        console.seats.take(session, seat)
    call.did("login", {"user": user})
    call.new_session = session
    return await _content(console, session)


async def log_out(console: Console, call: ApiRequest) -> dict[str, Any]:
    call.did("logout", {"user": call.session.user})
    if console.seats is not None:
        console.seats.leave(call.session)
    console.security.end(call.session)
    call.new_session = console.security.begin()
    return await _content(console, call.new_session)


async def _content(console: Console, session: Session) -> dict[str, Any]:
    security = console.security
    role = None
    if console.seats is not None and session.user is not None:
        role = (await console.seats.of(session)).sight.role
    return {
        "user": session.user,
        "loginRequired": security.login_required,
        "brokerUsers": console.seats is not None,
        "role": role,
        "readOnly": security.read_only or role is UserRole.LOOK,
        "reason": security.reason,
        "csrfToken": security.csrf_token(session),
        "version": release(),
        "now": console.clock.now_ms(),
        "nameServers": list(console.admin.name_servers),
    }
