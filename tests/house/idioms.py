"""Idioms that a reader has to translate, counted by file; CONTRIBUTING.md says what to write instead."""

import ast
import io
import re
import tokenize
from pathlib import Path

from tests.house.trees import parsed, walk

ROOT = Path(__file__).parents[2]
IDIOMS = re.compile(
    r"\b(?:is|are) none\b|\b[Ww]hoever\b|\bgo(?:es)? on\b|\b[Nn]obody\b|\b[Ss]omebody\b|\b[Ll]et who\b"
    r"|\b(?:is|are|was|were) gone\b|(?:\bfor|\bof|\bto|\bby|\bfrom|\bwith|,) who\b"
)


# What a module has between the words of a sentence that goes over several lines.
_BETWEEN = re.compile(r"""(?:["'#\\\s]|\bf(?=["']))+""")
_FIELDS = re.compile(r"\{[^{}]*\}")


def prose(path: Path) -> str:
    """Return comments and strings of a module, or the whole of a page.

    Nothing of a module that has no idiom anywhere: to take its tokens apart would be most of the work.
    """
    if path.suffix != ".py":
        return path.read_text(encoding="utf-8")
    text, tree = parsed(path)
    loose = _BETWEEN.sub(" ", text)
    if not IDIOMS.search(loose) and not IDIOMS.search(_FIELDS.sub("", loose)):
        return ""
    parts = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    parts += [
        node.value
        for node in walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return "\n".join(parts)


def counts(folders: tuple[str, ...]) -> dict[str, int]:
    """Return how many idioms each file holds, of those that hold one."""
    found = {}
    for folder in folders:
        for path in sorted(
            (ROOT / folder).rglob("*") if (ROOT / folder).is_dir() else [ROOT / folder]
        ):
            if path.suffix in (".py", ".md", ".js") and path.name != Path(__file__).name:
                count = len(IDIOMS.findall(" ".join(prose(path).split())))
                if count:
                    found[path.relative_to(ROOT).as_posix()] = count
    return found


def of_product() -> dict[str, int]:
    return counts(("pocketmq", "pyspark_pocketmq"))


def of_tests() -> dict[str, int]:
    return counts(("tests", "benchmarks"))


def of_docs() -> dict[str, int]:
    return counts(("docs", "README.md", "examples"))
