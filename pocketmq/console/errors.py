"""ApiError: what the API returns instead of 200, and how brokers' errors are mapped to it.

An answer is `{"error": what is wrong, "whatToDo": the next step or null, "code": a word}`; see API.md.
"""

from pocketmq.client import errors
from pocketmq.remoting.errors import (
    CarriedError,
    ConnectFailed,
    IllegalArgument,
    MessageCodecError,
    PocketMQError,
    RemotingError,
    RequestRefused,
)


class ApiError(CarriedError):
    """An answer with an HTTP status; retry_after_s: for 429."""

    def __init__(
        self,
        status: int,
        code: str,
        error: str,
        what_to_do: str | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.code = code
        self.error = error
        self.what_to_do = what_to_do
        self.retry_after_s = retry_after_s

    def to_json(self) -> dict[str, str | None]:
        return {"error": self.error, "whatToDo": self.what_to_do, "code": self.code}


def bad_request(error: str, what_to_do: str | None = None) -> ApiError:
    return ApiError(400, "BAD_REQUEST", error, what_to_do)


def not_found(error: str, what_to_do: str | None = None) -> ApiError:
    return ApiError(404, "NOT_FOUND", error, what_to_do)


def not_allowed(error: str) -> ApiError:
    """Return the refusal of what a user's policies do not allow."""
    return ApiError(403, "FORBIDDEN", error, _EXPLAIN)


# The first class that fits decides: (class, status, code).
_TABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.NoRoute, 404, "NOT_FOUND"),
    (errors.TopicNotExist, 404, "NOT_FOUND"),
    (errors.GroupNotExist, 404, "NOT_FOUND"),
    (errors.QueryNotFound, 404, "NOT_FOUND"),
    (errors.ConsumerNotOnline, 409, "CONFLICT"),
    (errors.NoPermission, 403, "FORBIDDEN"),
    (errors.Unauthorised, 403, "FORBIDDEN"),
    (errors.MessageIllegal, 400, "BAD_REQUEST"),
    (errors.SubscriptionIllegal, 400, "BAD_REQUEST"),
    (errors.RequestNotSupported, 501, "NOT_SUPPORTED"),
    (errors.AnswerTimeout, 504, "TIMEOUT"),
    (RequestRefused, 502, "BROKER"),
    (ConnectFailed, 503, "UNREACHABLE"),
    (RemotingError, 503, "UNREACHABLE"),
    (MessageCodecError, 400, "BAD_REQUEST"),
    (IllegalArgument, 400, "BAD_REQUEST"),
    (PocketMQError, 502, "BROKER"),
)


_EXPLAIN = "ask an administrator; which line decides: pocketmq account explain USER ACTION RESOURCE"
_UNSIGNED = "the broker checks signatures and does not accept the console's"
_SIGN = "set consoleAccessKey and consoleSecretKey to those of an administrator, and start again"


def in_words(error: PocketMQError, user: str | None = None) -> str:
    """Return an error with its next step, as one text. user: as of api_error."""
    found = api_error(error, user)
    return f"{found.error.rstrip('.')}. {found.what_to_do}" if found.what_to_do else found.error


def api_error(error: PocketMQError, user: str | None = None) -> ApiError:
    """Map an error of a call to a name server or broker to an answer. user: who signed it, not the console.

    Our errors end with the next step; it is split off if the class keeps it apart.
    """
    status, code = next((s, c) for kind, s, c in _TABLE if isinstance(error, kind))
    if isinstance(error, errors.Unauthorised):
        if user is not None:
            return ApiError(status, code, f"the broker refuses it: {error.remark}", _EXPLAIN)
        return ApiError(status, code, _UNSIGNED, _SIGN)
    text = str(error)
    advice = getattr(error, "advice", "")
    if advice and text.endswith(advice):
        return ApiError(status, code, text.removesuffix(advice).rstrip(" ."), advice)
    head, separator, tail = text.partition(". ")
    return ApiError(status, code, head, tail or None) if separator else ApiError(status, code, text)
