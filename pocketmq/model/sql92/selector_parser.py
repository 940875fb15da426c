"""The grammar of RocketMQ's SQL92 filters, parsed by operator precedence.

    level  operators, all left-associative         right side
    1      OR                                      level 2
    2      AND                                     level 3
    3      = <> IS [NOT] NULL                      level 4
    4      > >= < <= [NOT] BETWEEN x AND y         level 5
           [NOT] IN ('a', ...)  [NOT] CONTAINS, STARTSWITH, ENDSWITH 'a'
    5      + - NOT, before their operand           level 5
           (expression) 'text' 1 1.5 TRUE FALSE NULL property

Source: SelectorParser.jj, RocketMQ 4.9.7 and 5.3.3. Its oddities are kept:

1. The parser does not require the end of the text: what follows a complete expression is ignored, as in
   `a > 5 LIKE 'x'`, as long as it begins with a valid token.
2. A line comment needs its line end: `--5` at the end of the text is minus minus 5.
3. Tokens are as long as possible: `007` is 0, 0 and 7, of which only the first is read.
4. CONTAINS, STARTSWITH and ENDSWITH are keywords, as in 5.x; 4.9 takes them for names of properties.

Ours: the cost is linear in the text, brackets use no stack, and at most TOKENS_MAX tokens are read, so that
an expression blocks the event loop for at most 20 ms.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, NoReturn

from pocketmq.model.sql92 import expression
from pocketmq.model.sql92.errors import SelectorError
from pocketmq.model.sql92.expression import Expression, IllegalExpression, ValueType

TOKENS_MAX = 4_096
"""Words, signs, numbers and texts of an expression. Ours: RocketMQ has no limit but the frame's."""

_PARTS = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_WORDS = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"} | _PARTS,
)
_TOKEN = re.compile(
    r"""
    [ \t\n\r\f]*+ (?:
      (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<SIGN> <> | >= | <= | [=<>+\-(),] )
    | (?P<COMMENT> /\* )
    | (?P<FLOATING> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
                  | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<DECIMAL> 0 | [1-9][0-9]*[lL]? )
    | (?P<TEXT> '(?:''|[^'])*' )
    | (?P<END> \Z )
    )""",
    re.VERBOSE,
)
_LINE_END = re.compile(r"\r\n|\n|\r")
_VALUE = "a value (a property, a number, 'text', TRUE, FALSE, NULL, NOT, a sign or a bracket)"
_OPERATOR = "an operator (AND, OR, =, <>, <, >, IS, IN, BETWEEN, ...)"
_END = "END"


Token = tuple[str, str, int]
"""Kind (a group of _TOKEN, or the word or sign itself), text, position."""


class _Operator(NamedTuple):
    """An operator that waits for its right side: `build(*operands)` takes the last `arity` values.

    A bracket has level 0 and no build; BETWEEN waiting for its AND has level -1.
    """

    level: int
    token: Token
    build: Callable[..., Expression] | None = None
    arity: int = 2


_BRACKET, _BETWEEN, _OR, _AND, _EQUALITY, _COMPARISON, _PREFIX = 0, -1, 1, 2, 3, 4, 5

_INFIX: dict[str, tuple[int, Callable[[Expression, Expression], Expression]]] = {
    "OR": (_OR, expression.disjunction),
    "AND": (_AND, expression.conjunction),
    "=": (_EQUALITY, expression.equal),
    "<>": (_EQUALITY, expression.unequal),
    **{sign: (_COMPARISON, partial(expression.ordered, sign)) for sign in (">", ">=", "<", "<=")},
}
_BEHIND_IS_NULL = frozenset({"AND", "OR", "=", "<>", "IS", ")"})
_PREFIXES: dict[str, Callable[[Expression], Expression]] = {
    "+": lambda node: node,
    "-": expression.negated,
    "NOT": expression.inverted,
}
_VALUES: dict[str, Callable[[str], Expression]] = {
    "NAME": expression.property_,
    "TEXT": expression.text_literal,
    "DECIMAL": expression.decimal,
    "FLOATING": expression.floating,
    "TRUE": lambda image: expression.literal(ValueType.BOOLEAN, True, image),
    "FALSE": lambda image: expression.literal(ValueType.BOOLEAN, False, image),
    "NULL": lambda image: expression.literal(ValueType.BOOLEAN, None, image),
}


def parse(text: str) -> tuple[Expression, frozenset[str]]:
    """Return the condition that `text` states, and the names of the properties it reads.

    Raises: SelectorError with the position.
    """
    return _Parser(text).parse()


class _Parser:
    """Parses one text. values and operators: what was read and waits for its right side."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._values: list[Expression] = []
        self._operators: list[_Operator] = []
        self._brackets = 0
        # Behind IS NULL nothing can follow that binds more strongly.
        self._behind_is_null = False
        self._names: set[str] = set()

    def parse(self) -> tuple[Expression, frozenset[str]]:
        """See the function of this name."""
        self._operand(next(self._tokens))
        while self._goes_on(token := next(self._tokens)):
            pass
        operators = self._operators
        if operators and operators[-1].level == _BETWEEN:
            self._wrong(token, "AND")
        if self._brackets:
            self._wrong(token, f") or {_OPERATOR}")
        self._reduce(_OR)
        condition = self._built(("", "", 0), expression.as_boolean, self._values.pop())
        return condition, frozenset(self._names)

    def _operand(self, token: Token) -> None:
        """Parse signs, brackets and a value."""
        while True:
            kind = token[0]
            value = _VALUES.get(kind)
            if value is not None:
                if kind == "NAME":
                    self._names.add(token[1])
                self._values.append(self._built(token, value, token[1]))
                self._reduce(_PREFIX)
                return
            if kind == "(":
                self._brackets += 1
                self._operators.append(_Operator(_BRACKET, token))
            elif kind in _PREFIXES:
                self._operators.append(_Operator(_PREFIX, token, _PREFIXES[kind], 1))
            else:
                self._wrong(token, _VALUE)
            token = next(self._tokens)

    def _goes_on(self, token: Token) -> bool:
        """Parse what follows a value; False if the expression ends there (oddity 1)."""
        kind = token[0]
        operators = self._operators
        if self._behind_is_null and kind not in _BEHIND_IS_NULL:
            return False
        self._behind_is_null = False
        if operators and operators[-1].level == _BETWEEN:
            # x BETWEEN y was read: only its AND may follow.
            if kind != "AND":
                return False
            waiting = operators.pop()
            operators.append(_Operator(_COMPARISON, waiting.token, waiting.build, 3))
            self._operand(next(self._tokens))
        elif (infix := _INFIX.get(kind)) is not None:
            level, build = infix
            self._reduce(level)
            operators.append(_Operator(level, token, build))
            self._operand(next(self._tokens))
        elif kind == ")" and self._brackets:
            self._reduce(_OR)
            self._brackets -= 1
            operators.pop()
            self._reduce(_PREFIX)
        elif kind == "IS":
            self._is_null(token)
        elif kind == "NOT":
            self._tested(next(self._tokens), wanted=False)
        elif kind in ("BETWEEN", "IN") or kind in _PARTS:
            self._tested(token, wanted=True)
        else:
            return False
        return True

    def _is_null(self, token: Token) -> None:
        found = next(self._tokens)
        wanted = found[0] != "NOT"
        if not wanted:
            found = next(self._tokens)
        if found[0] != "NULL":
            self._wrong(found, "NULL or NOT" if wanted else "NULL")
        self._reduce(_EQUALITY)
        self._behind_is_null = True
        node = self._built(token, expression.is_null, self._values.pop())
        self._values.append(node if wanted else self._built(token, expression.inverted, node))

    def _tested(self, token: Token, *, wanted: bool) -> None:
        """Parse BETWEEN, IN, CONTAINS and the like, with or without NOT."""
        kind = token[0]
        self._reduce(_COMPARISON)
        if kind == "BETWEEN":
            build = expression.between if wanted else expression.not_between
            self._operators.append(_Operator(_BETWEEN, token, build))
            self._operand(next(self._tokens))
        elif kind == "IN":
            texts = self._texts()
            self._values.append(
                self._built(
                    token,
                    lambda node: expression.is_in(node, texts, wanted=wanted),
                    self._values.pop(),
                )
            )
        elif kind in _PARTS:
            search = expression.unquote(self._expect("TEXT", "'text'")[1])
            self._values.append(
                self._built(
                    token,
                    lambda node: expression.part(kind, node, search, wanted=wanted),
                    self._values.pop(),
                )
            )
        else:
            self._wrong(token, " or ".join(("BETWEEN", "IN", *sorted(_PARTS))))

    def _texts(self) -> list[str]:
        self._expect("(", "(")
        texts = []
        while True:
            texts.append(expression.unquote(self._expect("TEXT", "'text'")[1]))
            token = next(self._tokens)
            if token[0] == ")":
                return texts
            if token[0] != ",":
                self._wrong(token, ") or ,")

    def _expect(self, kind: str, spelled: str) -> Token:
        token = next(self._tokens)
        if token[0] != kind:
            self._wrong(token, spelled)
        return token

    def _reduce(self, level: int) -> None:
        """Build every operator that binds at least as strongly as `level`."""
        operators = self._operators
        while operators and operators[-1].level >= level:
            self._build(operators.pop())

    def _build(self, operator: _Operator) -> None:
        values, arity = self._values, operator.arity
        assert operator.build is not None
        operands = values[-arity:]
        del values[-arity:]
        values.append(self._built(operator.token, operator.build, *operands))

    def _built(
        self, token: Token, build: Callable[..., Expression], *operands: object
    ) -> Expression:
        """Build a node; what RocketMQ's checks refuse is an error at `token`."""
        try:
            return build(*operands)
        except IllegalExpression as illegal:
            raise SelectorError(self._text, token[2], str(illegal)) from None

    def _wrong(self, token: Token, wanted: str) -> NoReturn:
        found = "the expression ends" if token[0] == _END else f"{token[1]!a} stands"
        raise SelectorError(self._text, token[2], f"{found} where {wanted} is expected")


def _tokens(text: str) -> Iterator[Token]:
    """Yield tokens lazily: what follows the end of the expression is never read.

    After the last one, _END is repeated for ever.
    """
    position = count = 0
    # Behind the last line end there are no comments (oddity 2).
    comments_end = max(text.rfind("\n"), text.rfind("\r"))
    match = _TOKEN.match
    while found := match(text, position):
        kind = str(found.lastgroup)
        image, start, position = found[kind], found.start(kind), found.end()
        if kind == "NAME":
            word = image.upper()
            if word in _WORDS:
                kind = word
        elif kind == "SIGN":
            kind = image
            if image == "-" and position <= comments_end and text[position] == "-":
                line_end = _LINE_END.search(text, position)
                assert line_end is not None
                position = line_end.end()
                continue
        elif kind == "COMMENT":
            end = text.find("*/", position)
            if end < 0:
                raise SelectorError(text, start, "the comment is not closed; */ is missing")
            position = end + 2
            continue
        elif kind == _END:
            break
        count += 1
        if count > TOKENS_MAX:
            reason = f"the expression has more than {TOKENS_MAX} words, signs and values"
            raise SelectorError(text, start, reason)
        yield kind, image, start
    else:
        position += len(text[position:]) - len(text[position:].lstrip(" \t\n\r\f"))
        raise SelectorError(text, position, _not_a_token(text[position]))
    end_token = (_END, "", len(text.rstrip()))
    while True:
        yield end_token


def _not_a_token(character: str) -> str:
    if character == "'":
        return "the text is not closed; ' is missing"
    if character == '"':
        return 'a text is written in single quotes, not in "'
    return f"{character!a} has no meaning here; names hold letters, digits, _ and $"
