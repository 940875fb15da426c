"""SQL92 filters, judged by RocketMQ's own evaluator (S78)."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.sql92 import (
    EvaluationError,
    SelectorError,
    compile_expression,
    selector_parser,
)
from pocketmq.model.sql92.expression import Expression
from pocketmq.model.sql92.filter import CompileCache
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from tests.broker.selector_peer import FILTER_VERSIONS, Generator, evaluate, selector_driver
from tests.interop.driver import Driver
from tests.kit.missing import or_missing

CASES_PER_SEED = 1_000
SEEDS = range(4)

ODDITIES = [
    # (expression, properties, what RocketMQ says); each is one place where it differs from SQL.
    ("a = b", {}, "true"),
    ("a = b", {"a": "1"}, "false"),
    ("a = b", {"b": "1"}, "null"),
    ("a", {"a": "true"}, "false"),
    ("NOT a", {"a": "true"}, "true"),
    ("a = TRUE", {"a": "TRUE"}, "true"),
    ("TRUE = a", {"a": "true"}, "!"),
    ("TRUE = a", {}, "false"),
    ("5 = TRUE", {}, "false"),
    ("a > 5", {"a": "5.5"}, "!"),
    ("a > 5.0", {"a": "5.5"}, "true"),
    ("a > 5", {"a": "2147483648"}, "!"),
    ("a > 5L", {"a": "2147483648"}, "!"),
    ("a > 2147483648", {"a": "2147483649"}, "true"),
    ("a > 5 OR b = 'x'", {"a": "no", "b": "x"}, "!"),
    ("b = 'x' OR a > 5", {"a": "no", "b": "x"}, "true"),
    ("NOT (a > 5)", {"a": "no"}, "!"),
    ("a > b", {"a": "1e1", "b": "0x1p3"}, "true"),
    ("a >= b", {"a": "-0.0", "b": "0.0"}, "false"),
    ("a > 5.0", {"a": "NaN"}, "true"),
    ("a = '5.0'", {"a": "5"}, "false"),
    ("a = 5.0", {"a": " 5d "}, "true"),
    ("a = 5", {"a": "\u0665"}, "true"),
    ("-a = 5", {"a": "-5"}, "null"),
    ("- -5 = a", {"a": "5"}, "true"),
    ("-(a = 5) IS NULL", {"a": "5"}, "true"),
    ("a > 5 LIKE 'x'", {"a": "6"}, "true"),
    ("a > 007", {"a": "1"}, "true"),
    ("a > 5 -- five", {"a": "6"}, "true"),
    ("a > 5 /* ) */", {"a": "6"}, "true"),
    ("a BETWEEN 1 AND 5 AND b IS NULL", {"a": "5"}, "true"),
    ("a NOT BETWEEN 5 AND 1", {"a": "3"}, "true"),
    ("a BETWEEN -1 AND -5", {"a": "-3"}, "false"),
    ("a IN ('5', 'it''s')", {"a": "it's"}, "true"),
    ("a NOT IN ('5')", {}, "null"),
    ("a = 5 = TRUE", {"a": "5"}, "true"),
    ("a = b IS NULL", {"a": "5"}, "false"),
    ("a = 1 OR NULL", {"a": "1"}, "true"),
    ("a = 1 AND NULL", {"a": "1"}, "null"),
]
FIVE_ODDITIES = [
    ("a CONTAINS 'b'", {"a": "abc"}, "true"),
    ("a CONTAINS ''", {"a": "abc"}, "false"),
    ("a NOT CONTAINS 'x'", {}, "false"),
    ("a NOT CONTAINS ''", {"a": "abc"}, "false"),
    ("5 CONTAINS '5'", {}, "false"),
    ("'abc' STARTSWITH 'a' AND 'abc' NOT ENDSWITH 'b'", {}, "true"),
]
REFUSED = [
    # (expression, line and column of the mistake, a word of the advice)
    ("", (1, 1), "value"),
    ("a >", (1, 4), "value"),
    ("a =\n= 5", (2, 1), "value"),
    ("(a > 5", (1, 7), ")"),
    ("5", (1, 1), "condition"),
    ("a OR 5", (1, 3), "condition"),
    ("a.b = 1", (1, 2), "names hold letters"),
    ("a = 'x", (1, 5), "not closed"),
    ('a = "x"', (1, 5), "single quotes"),
    ("a = NULL", (1, 3), "IS NULL"),
    ("a > 'x'", (1, 3), "numbers"),
    ("a > TRUE", (1, 3), "numbers"),
    ("a > 5 > 4", (1, 7), "numbers"),
    ("TRUE = 5", (1, 6), "compared"),
    ("a BETWEEN 5 AND 1", (1, 3), "left bound"),
    ("a BETWEEN NULL AND 1", (1, 3), "NULL"),
    ("5 IN ('5')", (1, 3), "property"),
    ("a IN (5)", (1, 7), "'text'"),
    ("a NOT LIKE 'x'", (1, 7), "BETWEEN"),
    ("a = 9223372036854775808", (1, 5), "9223372036854775807"),
    ("a > 0.0", (1, 5), "write 0"),
    ("a > 1e400", (1, 5), "greatest"),
    ("a > 5 /* open", (1, 7), "*/"),
    ("a # b", (1, 3), "'#'"),
]


@pytest.fixture(scope="module", params=FILTER_VERSIONS)
def rocketmq(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Driver]]:
    """RocketMQ's evaluator of each version."""
    folder = tmp_path_factory.mktemp("filter")
    driver = or_missing(lambda: selector_driver(request.param, folder))
    yield request.param, driver
    driver.close()


def ours(case: dict[str, Any]) -> dict[str, Any]:
    """Our answer in the driver's shape; an error's text is left out."""
    try:
        compiled = compile_expression(case["expression"])
    except SelectorError:
        return {"error": ""}
    return {"results": [_result(compiled.evaluate, message) for message in case["messages"]]}


def _result(evaluate_: Any, message: dict[str, str]) -> str:
    try:
        return {True: "true", False: "false", None: "null"}[evaluate_(message)]
    except EvaluationError:
        return "!"


def theirs(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"error": ""}
    return {"results": ["!" if result[0] == "!" else result for result in answer["results"]]}


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_expressions_give_what_rocketmq_gives(
    rocketmq: tuple[str, Driver], seed: int
) -> None:
    """A thousand expressions with twelve messages each, four seeds, both versions."""
    version, driver = rocketmq
    generator = Generator(seed, five=version.startswith("5"))
    cases = [generator.case() for _ in range(CASES_PER_SEED)]
    answers = evaluate(driver, cases)
    for case, answer in zip(cases, answers, strict=True):
        assert ours(case) == theirs(answer), f"seed {seed}: {case['expression']!r}, Java: {answer}"
    results = [result for answer in answers for result in theirs(answer).get("results", ())]
    assert {"true", "false", "null", "!"} <= set(results), (
        "the generator no longer reaches all answers"
    )
    assert sum("error" in answer for answer in answers) < len(answers) // 2


def test_each_oddity_is_rocketmqs_own(rocketmq: tuple[str, Driver]) -> None:
    """What differs from SQL is listed here by name, and RocketMQ agrees with the list."""
    version, driver = rocketmq
    listed = ODDITIES + (FIVE_ODDITIES if version.startswith("5") else [])
    cases: list[dict[str, Any]] = [
        {"expression": expression, "messages": [message]} for expression, message, _ in listed
    ]
    for (expression, message, expected), answer in zip(
        listed, evaluate(driver, cases), strict=True
    ):
        assert theirs(answer) == {"results": [expected]}, (expression, message, answer)


@pytest.mark.parametrize(
    ("expression", "message", "expected"), ODDITIES + FIVE_ODDITIES, ids=lambda value: str(value)
)
def test_an_oddity_of_rocketmq_is_kept(
    expression: str, message: dict[str, str], expected: str
) -> None:
    """The same list without a JVM."""
    assert ours({"expression": expression, "messages": [message]}) == {"results": [expected]}
    assert compile_expression(expression).matches(message) is (expected == "true")


@pytest.mark.parametrize(("expression", "place", "advice"), REFUSED, ids=lambda value: str(value))
def test_a_wrong_expression_is_refused_with_position_and_advice(
    expression: str, place: tuple[int, int], advice: str
) -> None:
    """Illegal SQL gets RocketMQ's code and a remark that says what to do."""
    with pytest.raises(SelectorError) as refused:
        compile_expression(expression)
    assert (refused.value.line, refused.value.column) == place
    assert f"line {place[0]}, column {place[1]}" in str(refused.value)
    assert advice in str(refused.value)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert isinstance(refused.value, IllegalArgument)


def test_rocketmq_refuses_the_same_wrong_expressions(rocketmq: tuple[str, Driver]) -> None:
    """None of our refusals is stricter than RocketMQ's."""
    _, driver = rocketmq
    cases: list[dict[str, Any]] = [
        {"expression": expression, "messages": []} for expression, *_ in REFUSED
    ]
    for case, answer in zip(cases, evaluate(driver, cases), strict=True):
        assert "error" in answer, case["expression"]


def test_a_filter_names_the_properties_it_looks_at() -> None:
    """So that only those are decoded from a record."""
    assert compile_expression("a > 5 AND (b IS NULL OR a IN ('x')) c").names == {"a", "b"}


def test_long_chains_work_and_deep_nesting_is_refused() -> None:
    """An expression cannot overflow the stack of the event loop."""
    many = " OR ".join(f"a = '{number}'" for number in range(1_000))
    assert compile_expression(many).matches({"a": "999"})
    assert compile_expression("(" * 2_000 + "a = '1'" + ")" * 2_000).matches({"a": "1"})
    for deep in ("NOT " * 1_000 + "a", "- " * 1_000 + "5 = a", "a" + " IS NULL" * 1_000):
        with pytest.raises(SelectorError, match="nested"):
            compile_expression(deep)
    with pytest.raises(SelectorError, match="at most 65536"):
        compile_expression("a = '" + "x" * 70_000 + "'")
    with pytest.raises(SelectorError, match="more than 4096 words"):
        compile_expression(" OR ".join(["a = 1"] * 1_025))


@pytest.mark.parametrize(
    "text",
    [
        "-" * 60_000,
        "-" * 60_000 + "\n1 = a",
        "'" * 60_000,
        "+" * 60_000,
        "/*" * 30_000,
        "0" * 60_000,
    ],
    ids=lambda text: text[:2],
)
def test_the_price_of_a_text_is_linear(text: str) -> None:
    """A text of 60,000 characters costs about 16 times one of 3,750, whatever it is made of."""

    def price(part: str) -> int:
        began = time.thread_time_ns()
        for _ in range(3):
            with contextlib.suppress(SelectorError):
                selector_parser.parse(part)
        return time.thread_time_ns() - began

    # A quadratic one would cost 256 times as much; 3 ms are what no small one falls below.
    assert price(text) < 100 * max(price(text[-len(text) // 16 :]), 3_000_000)


def test_compiled_expressions_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that do not compile; the sum of their tokens is bounded, not only their number."""
    parsed: list[str] = []
    parse = selector_parser.parse

    def counted(text: str) -> tuple[Expression, frozenset[str]]:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(selector_parser, "parse", counted)
    cache = CompileCache(size_max=40_000)
    for _ in range(3):
        assert cache.compiled("kept = 1").matches({"kept": "1"})
        with pytest.raises(SelectorError):
            cache.compiled("kept = ")
    assert parsed == ["kept = 1", "kept = "]
    for number in range(100):
        cache.compiled(f"a{number} = '{'x' * 500}'")
    assert cache.size <= 40_000
    cache.compiled("kept = 1")
    assert parsed[-1] == "kept = 1"


def test_each_expression_in_use_is_compiled_once() -> None:
    cache = CompileCache(size_max=40_000)
    texts = [f"a{number} = '{'x' * 500}'" for number in range(100)]
    with cache.in_use() as use:
        use("not (")
        for text in texts:
            use(text)
        found = [cache.compiled(text) for text in texts]
        with cache.in_use() as again:
            again(texts[0])
        assert all(cache.compiled(t) is f for t, f in zip(texts, found, strict=True))
        assert cache.size <= 40_000
    assert cache.compiled(texts[0]) is not found[0]


@given(st.text(max_size=60) | st.text(alphabet="ab15.'-+=<>()/* \n,NOTINULSBEW", max_size=60))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    """Whatever a client sends as an expression, nothing but SelectorError comes out."""
    try:
        compile_expression(text).matches({"a": text, "b": "1"})
        position = 0
    except SelectorError as refused:
        position = refused.position
    assert 0 <= position <= len(text)
