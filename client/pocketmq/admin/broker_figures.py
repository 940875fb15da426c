"""What a broker's own numbers (GET_BROKER_RUNTIME_INFO) say, for every face that shows them."""

from typing import Any

FIGURES = (
    "version",
    "in",
    "out",
    "inToday",
    "outToday",
    "inYesterday",
    "outYesterday",
    "diskRatio",
    "startedAt",
)


def figures_of(runtime: dict[str, str]) -> dict[str, Any]:
    """The fields that FIGURES names; None where the broker does not say."""

    def number(name: str) -> int:
        return integer(runtime.get(name)) or 0

    ratio = _real(runtime.get("commitLogDiskRatio"))
    transferred = runtime.get("getTransferredTps") or runtime.get("getTransferedTps")
    return {
        "version": runtime.get("brokerVersionDesc"),
        "in": _real(_first_word(runtime.get("putTps"))) or 0.0,
        "out": _real(_first_word(transferred)) or 0.0,
        "inToday": number("msgPutTotalTodayNow") - number("msgPutTotalTodayMorning"),
        "outToday": number("msgGetTotalTodayNow") - number("msgGetTotalTodayMorning"),
        "inYesterday": number("msgPutTotalTodayMorning") - number("msgPutTotalYesterdayMorning"),
        "outYesterday": number("msgGetTotalTodayMorning") - number("msgGetTotalYesterdayMorning"),
        "diskRatio": ratio if ratio is not None and ratio >= 0 else None,
        "startedAt": integer(runtime.get("bootTimestamp")),
    }


def _first_word(text: str | None) -> str | None:
    return text.split(" ", 1)[0] if text else None


def integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _real(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
