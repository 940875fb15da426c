"""The table of findings: verify, a start and a repair treat a damaged store as each says."""

import json
from pathlib import Path

import pytest

from pocketmq.cli.app import run
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import StoreError
from pocketmq.store.doctor.examination import diagnose
from pocketmq.store.findings import FINDINGS, AtRepair, AtStart, FindingCode, FindingRow, Mender
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.rebuild import NotRepairable, Repair
from pocketmq.store.repair.repairs import Repairs
from tests.store.damaged_stores import DAMAGES, copy_of, records, server, write_store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "store"
    write_store(root)
    return root


def damaged(whole: Path, folder: Path, code: FindingCode) -> Path:
    root = copy_of(whole, folder / "store")
    DAMAGES[code][0](root)
    return root


def codes(root: Path) -> set[FindingCode]:
    return {each.code for each in diagnose(StoreReader(str(root))).problems}


def contents(root: Path) -> dict[Path, bytes]:
    """All files that are not full of holes, and not the lock."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.name not in ("lock", "timerwheel")}


def prepared(repair: Repair) -> Repairs:
    repair.check()
    return repair.prepare()


def test_each_code_has_a_row_and_a_damaged_store() -> None:
    assert set(FINDINGS) == set(FindingCode) == set(DAMAGES)


def test_a_whole_store_has_no_finding(whole: Path) -> None:
    found = diagnose(StoreReader(str(whole)))
    assert found.problems == []
    assert found.records == found.entries > 110


@pytest.mark.parametrize("code", FindingCode)
def test_verify_names_the_damage_and_who_mends_it(
    whole: Path, tmp_path: Path, code: FindingCode, capsys: pytest.CaptureFixture[str]
) -> None:
    root = damaged(whole, tmp_path, code)
    before = contents(root)
    failed = run(["store", "verify", str(root), "--json"])
    rows = json.loads(capsys.readouterr().out)["problems"]
    assert {code} <= {row["code"] for row in rows} <= {code} | DAMAGES[code][1]
    [*_, row] = [row for row in rows if row["code"] == code]
    expected = FINDINGS[code]
    assert row["severity"] == expected.severity
    assert row["mender"] == expected.mender
    assert row["advice"] == expected.advice
    assert failed == any(row["severity"] != "info" for row in rows)
    assert contents(root) == before


@pytest.mark.parametrize("row", FINDINGS.values(), ids=lambda row: row.code)
def test_a_start_does_what_the_row_says(whole: Path, tmp_path: Path, row: FindingRow) -> None:
    root = damaged(whole, tmp_path, row.code)
    if row.start is AtStart.REFUSES:
        before = contents(root / "config")
        with pytest.raises(StoreError):
            server(root).start()
        assert contents(root / "config") == before
        return
    with server(root) as broker:
        if row.code is FindingCode.FILE_EMPTY:
            assert not broker.admin.topics.exists("Late")
            return
        served = len(broker.messages("Late"))
    left = codes(root)
    if row.start is AtStart.MENDS:
        assert left == set()
        return
    if row.start is AtStart.CUTS:
        assert served < len(records(whole, "Late"))
        assert any((root / "dropped").iterdir())
        return
    assert served >= len(records(whole, "Late")) - 1


@pytest.mark.parametrize("row", FINDINGS.values(), ids=lambda row: row.code)
def test_a_repair_does_what_the_row_says(whole: Path, tmp_path: Path, row: FindingRow) -> None:
    root = damaged(whole, tmp_path, row.code)
    before = contents(root)
    repair = Repair(str(root), SystemClock())
    if row.repair is AtRepair.REFUSES:
        with pytest.raises(NotRepairable, match=rf"{row.code}, .*; nothing was changed"):
            prepared(repair)
        assert contents(root) == before
        return
    done = repair.run(prepared(repair))
    if row.repair is AtRepair.MENDS:
        assert codes(root) == set()
        assert done.left == []
        return
    assert codes(root) == {row.code}
    listed = {each.code for each in done.left}
    assert listed == (set() if row.mender is Mender.START else {row.code})
