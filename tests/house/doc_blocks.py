"""The code of the documentation, as blocks that a test runs.

A block is what stands between ``` fences. The lines before a fence may hold words to the test, as comments
that no reader sees:

    <!-- args: tagA -->        a Python program gets these arguments
    <!-- until: text -->       it runs until it prints the text; then it gets SIGTERM, and ends cleanly
    <!-- run by tests/... -->  another test runs it
    <!-- not run: why -->      it cannot be run, for the reason given

Programs and commands name the name server 127.0.0.1:9876; a test replaces it by its own.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME_SERVER = "127.0.0.1:9876"
_FENCE = re.compile(r"^```(\w*)\s*$")
_WORD = re.compile(r"^<!-- (args|until|run by|not run):? ?(.*?) -->$")


@dataclass(frozen=True)
class Block:
    """One block: where it stands, its language, its text, and the words before it with their values."""

    path: Path
    line: int
    language: str
    text: str
    words: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def run_elsewhere(self) -> bool:
        return "run by" in self.words or "not run" in self.words


def pages() -> list[Path]:
    """Every page for users; decisions and the table of tests are for contributors."""
    return [
        ROOT / "README.md",
        ROOT / "client" / "README.md",
        ROOT / "examples" / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]


def blocks(path: Path, *languages: str) -> list[Block]:
    """The blocks of a page in these languages, in order."""
    found: list[Block] = []
    words: dict[str, str] = {}
    language: str | None = None
    text: list[str] = []
    start = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None:
            if fence is not None:
                language, text, start = fence[1], [], number + 1
            elif line.strip():
                word = _WORD.match(line)
                words = {**words, word[1]: word[2]} if word is not None else {}
        elif fence is not None:
            if language in languages:
                found.append(Block(path, start, language, "\n".join(text) + "\n", words))
            language, words = None, {}
        else:
            text.append(line)
    return found
