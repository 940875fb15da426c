"""The tables of docs/spark.md that are the code's: python -m tools.spark_tables

Between the marks `options: begin` and `options: end` stand the options of format("pocketmq"), between
those of `columns` its columns. tests/spark/test_docs.py compares them with what is made here.
"""

from pathlib import Path

from pocketmq.bulk.columns.schema import COLUMNS
from pocketmq.spark.options import NOT_FOR_USERS, Options

PAGE = Path(__file__).parents[1] / "docs" / "spark.md"


def options() -> str:
    """The options as a Markdown table."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, k in Options.keys().items():
        if name in NOT_FOR_USERS:
            continue
        allowed = f" One of {', '.join(k.choices)}." if k.choices else ""
        if k.min is not None:
            allowed = f" At least {k.min}." if k.max is None else f" {k.min} to {k.max}."
        default = "" if k.default == "" else f"`{k.format(k.default)}`"
        lines.append(f"| `{name}` | {default} | {k.help}{allowed} |".replace("||", r"\|\|"))
    return "\n".join(lines)


def columns() -> str:
    """The columns as a Markdown table."""
    lines = ["| column | type | standard | part | what |", "|---|---|---|---|---|"]
    for column in COLUMNS.values():
        kind = (
            str(column.type)
            .replace("timestamp[us, tz=UTC]", "timestamp")
            .replace("int64", "bigint")
        )
        kind = kind.replace("int32", "int").replace(
            "map<string, string>", "map&lt;string,string&gt;"
        )
        standard = "yes" if column.standard else ""
        lines.append(f"| `{column.name}` | {kind} | {standard} | {column.part} | {column.help} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """The page with the tables as the code has them."""
    for name, table in (("options", options()), ("columns", columns())):
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page has no marks for {name}"
        text = f"{before}{begin}\n{table}\n\n{end}{after}"
    return text


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
