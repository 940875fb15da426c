"""The grammar of RocketMQ's SQL92 filters. The one module that imports lark; imported when first needed.

Source: SelectorParser.jj, RocketMQ 4.9.7 and 5.3.3. Its oddities are kept:

1. The parser does not ask for the end of the text: what follows a whole expression is ignored, as in
   `a > 5 LIKE 'x'`, as long as its first token is one.
2. A line comment needs its line end: `--5` at the end of the text is minus minus 5.
3. Tokens are as long as possible: `007` is 0, 0 and 7, of which only the first is read.
4. CONTAINS, STARTSWITH and ENDSWITH are words, as in 5.x; 4.9 takes them for names of properties.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from lark import Lark, Transformer
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer, Token

from pocketmq.broker.sql92 import expression
from pocketmq.broker.sql92.errors import SelectorError
from pocketmq.broker.sql92.expression import IllegalExpression, Kind, Node

_GRAMMAR = """
start: any
?any: all | any OR all                                  -> either
?all: equality | all AND equality                       -> both
?equality: comparison
    | equality EQUAL comparison                         -> equal
    | equality UNEQUAL comparison                       -> unequal
    | equality IS NULL                                  -> is_null
    | equality IS NOT NULL                              -> is_not_null
?comparison: unary
    | comparison (GREATER | GREATER_EQUAL | LESS | LESS_EQUAL) unary  -> ordered
    | comparison BETWEEN unary AND unary                -> between
    | comparison NOT BETWEEN unary AND unary            -> not_between
    | comparison IN "(" texts ")"                       -> is_in
    | comparison NOT IN "(" texts ")"                   -> is_not_in
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) TEXT        -> part
    | comparison NOT (CONTAINS | STARTSWITH | ENDSWITH) TEXT    -> not_part
?unary: primary
    | PLUS unary                                        -> unchanged
    | MINUS unary                                       -> negated
    | NOT unary                                         -> inverted
?primary: "(" any ")"
    | TEXT                                              -> text
    | DECIMAL                                           -> decimal
    | FLOATING                                          -> floating
    | TRUE                                              -> true
    | FALSE                                             -> false
    | NULL                                              -> null
    | NAME                                              -> property_
texts: TEXT ("," TEXT)*
"""

_WORDS = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
    *("CONTAINS", "STARTSWITH", "ENDSWITH"),
)
_SIGNS = {
    "=": "EQUAL",
    "<>": "UNEQUAL",
    ">": "GREATER",
    ">=": "GREATER_EQUAL",
    "<": "LESS",
    "<=": "LESS_EQUAL",
    "+": "PLUS",
    "-": "MINUS",
    "(": "LPAR",
    ")": "RPAR",
    ",": "COMMA",
}
_TOKEN = re.compile(
    r"""
      (?P<SKIP> [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) )
    | (?P<COMMENT> /\* )
    | (?P<FLOATING> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
                  | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<DECIMAL> 0 | [1-9][0-9]*[lL]? )
    | (?P<TEXT> '(?:''|[^'])*' )
    | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<SIGN> <> | >= | <= | [=<>+\-(),] )
    """,
    re.VERBOSE,
)
_NAMED = [name for name in _SIGNS.values() if name not in ("LPAR", "RPAR", "COMMA")]
_VALUE = "a value (a property, a number, 'text', TRUE, FALSE, NULL, NOT, a sign or a bracket)"
_VALUES = frozenset(
    {"NAME", "DECIMAL", "FLOATING", "TEXT", "TRUE", "FALSE", "NULL", "LPAR", "PLUS", "MINUS"}
)
_SPELLED = {name: sign for sign, name in _SIGNS.items()} | {"TEXT": "'text'"}


class _Misplaced(Exception):
    """RocketMQ's checks refuse the part at `position`."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def parse(text: str) -> tuple[Node, frozenset[str]]:
    """The condition that `text` states, and the names of the properties it looks at.

    Raises: SelectorError with the position.
    """
    driver: Any = _parser().parse_interactive("")
    names: set[str] = set()
    unexpected: UnexpectedToken | None = None
    try:
        for token in _tokens(text):
            try:
                driver.feed_token(token)
            except UnexpectedToken as error:
                unexpected = error
                break
            if token.type == "NAME":
                names.add(str(token))
        try:
            end = Token("$END", "", start_pos=len(text.rstrip()))
            return driver.feed_token(end), frozenset(names)
        except UnexpectedToken as at_end:
            raise _wrong(text, (unexpected or at_end).token, driver.accepts()) from None
    except _Misplaced as misplaced:
        raise SelectorError(text, misplaced.position, misplaced.reason) from None


def _tokens(text: str) -> Iterator[Token]:
    """Tokens as they are asked for: what follows the end of the expression is never looked at."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise SelectorError(text, position, _not_a_token(text[position]))
        kind, start, position = str(found.lastgroup), position, found.end()
        if kind == "SKIP":
            continue
        if kind == "COMMENT":
            end = text.find("*/", position)
            if end < 0:
                raise SelectorError(text, start, "the comment is not closed; */ is missing")
            position = end + 2
            continue
        image = found[0]
        if kind == "SIGN":
            kind = _SIGNS[image]
        elif kind == "NAME" and (word := image.upper()) in _WORDS and image.isascii():
            kind = word
        yield Token(kind, image, start_pos=start)


def _not_a_token(character: str) -> str:
    if character == "'":
        return "the text is not closed; ' is missing"
    if character == '"':
        return 'a text stands in single quotes, not in "'
    return f"{character!a} has no meaning here; names hold letters, digits, _ and $"


def _wrong(text: str, token: Token, expected: set[str]) -> SelectorError:
    wanted = sorted(_SPELLED.get(each, each) for each in expected - {"$END"})
    if expected >= _VALUES:
        wanted = [_VALUE]
    found = "the expression ends" if token.type == "$END" else f"{str(token)!a} stands"
    return SelectorError(
        text, token.start_pos or 0, f"{found} where {' or '.join(wanted)} is expected"
    )


def _located(build: Callable[..., Node]) -> Callable[["_Builder", list[Any]], Node]:
    """A method of the builder: `build(*children)` with the position of its operator in errors."""

    def method(_self: "_Builder", children: list[Any]) -> Node:
        try:
            return build(*children)
        except IllegalExpression as illegal:
            at = next((child for child in children if isinstance(child, Token)), None)
            position = 0 if at is None or at.start_pos is None else at.start_pos
            raise _Misplaced(str(illegal), position) from None

    return method


class _Builder(Transformer[Token, Node]):
    """From each rule of the grammar to its node, while parsing."""

    start = _located(expression.as_boolean)
    either = _located(lambda left, _or, right: expression.disjunction(left, right))
    both = _located(lambda left, _and, right: expression.conjunction(left, right))
    equal = _located(lambda left, _equal, right: expression.equal(left, right))
    unequal = _located(lambda left, _unequal, right: expression.unequal(left, right))
    is_null = _located(lambda node, _is, _null: expression.is_null(node))
    is_not_null = _located(
        lambda node, _is, _not, _null: expression.inverted(expression.is_null(node))
    )
    ordered = _located(lambda left, sign, right: expression.ordered(str(sign), left, right))
    between = _located(
        lambda value, _between, low, _and, high: expression.between(value, low, high)
    )
    not_between = _located(
        lambda value, _not, _between, low, _and, high: expression.not_between(value, low, high)
    )
    is_in = _located(lambda node, _in, texts: expression.is_in(node, texts, wanted=True))
    is_not_in = _located(lambda node, _not, _in, texts: expression.is_in(node, texts, wanted=False))
    part = _located(
        lambda node, word, search: expression.part(
            word.upper(), node, expression.unquote(search), wanted=True
        )
    )
    not_part = _located(
        lambda node, _not, word, search: expression.part(
            word.upper(), node, expression.unquote(search), wanted=False
        )
    )
    unchanged = _located(lambda _plus, node: node)
    negated = _located(lambda _minus, node: expression.negated(node))
    inverted = _located(lambda _not, node: expression.inverted(node))
    text = _located(expression.text_literal)
    decimal = _located(expression.decimal)
    floating = _located(expression.floating)
    true = _located(lambda image: expression.literal(Kind.BOOLEAN, True, image))
    false = _located(lambda image: expression.literal(Kind.BOOLEAN, False, image))
    null = _located(lambda image: expression.literal(Kind.BOOLEAN, None, image))
    property_ = _located(lambda name: expression.property_(str(name)))

    def texts(self, children: list[Any]) -> list[str]:
        return [expression.unquote(child) for child in children]


class _NoLexer(Lexer):
    """Tokens are fed by `parse`; lark only has to know that they come from elsewhere."""

    def __init__(self, _configuration: object) -> None:
        pass

    def lex(self, _lexer_state: object, _parser_state: object) -> Iterator[Token]:
        return iter(())


@cache
def _parser() -> Lark:
    declared = " ".join((*_WORDS, *_NAMED, "TEXT", "DECIMAL", "FLOATING", "NAME"))
    return Lark(
        f"{_GRAMMAR}\n%declare {declared}\n",
        parser="lalr",
        lexer=_NoLexer,
        transformer=_Builder(),
    )
