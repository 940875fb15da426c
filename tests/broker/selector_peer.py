"""RocketMQ's own SQL92 evaluator in a JVM, and a generator of expressions and messages for it.

The generator aims at the edges of the grammar and of Java's number formats rather than at sensible
filters; a tenth of its expressions are broken on purpose.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop import toolchain
from tests.interop.driver import Driver
from tests.interop.processes import QUICK_JVM, quiet_jvm

FILTER_VERSIONS = ("4.9.7", "5.5.0")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = ("a", "b", "c", "_x", "$y", "TAGS", "K1")
# Digits of other scripts are digits to Java, but not those that take two UTF-16 units.
_DIGITS = ("\u0663", "\uff11\uff12", "\U0001d7d3")
_NUMBERS = _words("""
    0 1 2 3 5 6 -1 +7 007 -0 2147483647 2147483648 -2147483648 -2147483649 9223372036854775807
    9223372036854775808 -9223372036854775808 0000000000000000000000000000000000005
    5.0 5.5 .5 5. 1e3 1E400 -1e400 1e-400 0.0 -0.0 NaN -NaN Infinity -Infinity inf 0x1p3 0x.8p1 0xAp-2d
    0x1p99999 1d 2.5f 1_000 1-2 + -
""")
_TEXTS = _words("true TRUE tRuE false yes x X xy it's null NULL \u4e2d\u6587 \xe9 abc abcabc -- '")
VALUES = (*_NUMBERS, *_TEXTS, *_DIGITS, " 5 ", "5 ", "\t5", "", " ")
LITERALS = _words("""
    0 1 2 5 007 5L 5l 0L 2147483647 2147483648 9223372036854775807 9223372036854775808
    99999999999999999999 5.0 5. .5 5.5E1 5e0 1e400 0.0 1e-400 4.9e-324 1E 3.0L
    'x' 'xy' 'it''s' '' '5' 'abc' '\u4e2d\u6587' '''' TRUE false NULL null 'true' 'TRUE'
""")
_SIGNS = _words(
    "# a 5 ' \" . , ( ) = == != <> AND LIKE NOT IS IN * BETWEEN ; % -- - + a.b CONTAINS EOF"
)
# Letters that become ASCII ones in another case; the last two are no white space to the grammar.
_LETTERS = ("\u212a", "\u0131", "\u017f", "\xe9", "\x00", "\v", "\u00a0")
_COMMENTS = ("-- c\n", "-- c", "/* c */", "/* c", "/***/", "/**/ /* * */")
STRAY = (*_SIGNS, *_LETTERS, *_COMMENTS, "", " ", "\t", "\n", "\r\n", "\f", "LIKE 'x'")
FIVE_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")


class Generator:
    """Expressions and messages from one seed; the same seed gives the same ones."""

    def __init__(self, seed: int, *, five: bool) -> None:
        """Args: five adds the words that RocketMQ 5 has and 4.9 has not."""
        self._random = random.Random(seed)
        self._five = five

    def case(self, messages: int = 12) -> dict[str, Any]:
        """{"expression", "messages"} as the driver takes them."""
        text = self.expression()
        if not self._five:
            for word in FIVE_WORDS:
                text = text.replace(word, "LIKE").replace(word.lower(), "like")
        return {"expression": text, "messages": [self.message() for _ in range(messages)]}

    def message(self) -> dict[str, str]:
        chosen = self._random.sample(NAMES, self._random.randrange(len(NAMES)))
        return {name: self._random.choice(VALUES) for name in chosen}

    def expression(self) -> str:
        text = self._condition(self._random.choice((1, 2, 2, 3)))
        if self._random.random() < 0.1:
            at = self._random.randrange(len(text) + 1)
            cut = at + self._random.choice((0, 0, 1, 4))
            text = text[:at] + self._random.choice(STRAY) + text[cut:]
        if self._random.random() < 0.05:
            text += " " + self._random.choice(STRAY)
        return text

    def _condition(self, depth: int) -> str:
        pick = self._random.random()
        if depth > 0:
            if pick < 0.2:
                return f"{self._condition(depth - 1)} AND {self._condition(depth - 1)}"
            if pick < 0.4:
                return f"{self._condition(depth - 1)} or {self._condition(depth - 1)}"
            if pick < 0.5:
                return f"({self._condition(depth - 1)})"
            if pick < 0.56:
                return f"NOT {self._condition(depth - 1)}"
            if pick < 0.6:
                return f"NOT ({self._condition(depth - 1)})"
            if pick < 0.64:
                return f"({self._condition(depth - 1)}) {self._sign()} {self._value()}"
            if pick < 0.66:
                return f"({self._condition(depth - 1)}) is{self._maybe(' not')} null"
            if pick < 0.68:
                return f"{self._value()} {self._sign()} ({self._condition(depth - 1)})"
        return self._simple()

    def _simple(self) -> str:
        pick = self._random.random()
        if pick < 0.25:
            return f"{self._value()}{self._blank()}{self._sign()}{self._blank()}{self._value()}"
        if pick < 0.45:
            sides = [self._name(), self._random.choice(("5", "3", "-2", "2.5", "3000000000", "b"))]
            self._random.shuffle(sides)
            return f"{sides[0]} {self._sign()} {sides[1]}"
        if pick < 0.48:
            return (
                f"{self._value()} {self._maybe('NOT ')}BETWEEN {self._value()} and {self._value()}"
            )
        if pick < 0.55:
            return f"{self._name()} {self._maybe('not ')}between {self._name()} AND 6"
        if pick < 0.68:
            texts = ", ".join(
                self._random.choice(("'x'", "'5'", "'it''s'", "''", "'abc'", "'中文'"))
                for _ in range(self._random.choice((1, 2, 3, 6)))
            )
            return f"{self._name()} {self._maybe('not ')}IN ({texts})"
        if pick < 0.78:
            return f"{self._value()} IS {self._maybe('NOT ')}NULL"
        if pick < 0.9:
            word = self._random.choice((*FIVE_WORDS, "contains"))
            text = self._random.choice(("'x'", "'5'", "''", "'bc'", "'ab'"))
            return f"{self._value()} {self._maybe('NOT ')}{word} {text}"
        return self._name() if pick < 0.98 else self._value()

    def _value(self) -> str:
        pick = self._random.random()
        if pick < 0.5:
            return self._name()
        if pick < 0.56:
            return f"-{self._blank()}{self._value()}"
        if pick < 0.6:
            return f"+{self._value()}"
        if pick < 0.63:
            return f"({self._value()})"
        return self._random.choice(LITERALS)

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def _sign(self) -> str:
        return self._random.choice(("=", "=", "<>", ">", ">=", "<", "<="))

    def _maybe(self, text: str) -> str:
        return text if self._random.random() < 0.4 else ""

    def _blank(self) -> str:
        return self._random.choice(("", " ", " ", "\n", "/* , */"))


def selector_driver(version: str, folder: Path) -> Driver:
    """RocketMQ's filter library of FILTER_VERSIONS in its own process. Raises: ToolchainMissing."""
    command = [
        toolchain.java(),
        *QUICK_JVM,
        *quiet_jvm(folder / f"filter-{version}-home"),
        "-cp",
        toolchain.class_path(f"filter-{version}"),
        "io.pocketmq.interop.Selector",
    ]
    return Driver(f"filter-{version}", command, folder)


def evaluate(driver: Driver, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What RocketMQ says: for each case {"error"} or {"results"} of true, false, null and !Exception."""
    answers = driver.call("evaluate", within_s=120, cases=list(cases))
    assert len(answers) == len(cases)
    return list(answers)
