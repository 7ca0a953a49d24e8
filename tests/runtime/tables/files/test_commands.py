"""refluid table, run in this process."""

import numpy as np
import pytest

from refluid.cli import main
from tables_to_save import make, save, train


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    code = main(["table", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def folder(tmp_path):
    """A table of two servers, and a delta."""
    tables = make("adagrad", count=2)
    train(tables, np.arange(-50, 50))
    save(tables, tmp_path / "0")
    train(tables, [7, 1000], seed=1)
    tables[0].evict(count=1.5)
    save(tables, tmp_path / "1", base=tmp_path / "0")
    return tmp_path


def test_inspect_shows_the_snapshots_of_a_table(folder, capsys):
    code, out, _ = run(capsys, "inspect", folder / "1" / "emb")
    assert code == 0
    for words in ("table      emb", "rows       3 x float32; 40 bytes", "optimizer  adagrad (Moment)"):
        assert words in out
    first, second = out.splitlines()[-2:]
    assert first.split()[1:6] == ["whole", "100", "0", "1", "2"] and first.endswith("-50 to 49")
    assert second.split()[1:3] == ["delta", "1"] or second.split()[1:3] == ["delta", "2"]


def test_inspect_shows_all_tables_of_a_folder(folder, capsys):
    code, out, _ = run(capsys, "inspect", folder)
    assert code == 0 and out.count("table      emb") == 2
    (folder / "none").mkdir()
    code, _, err = run(capsys, "inspect", folder / "none")
    assert code == 2 and err.startswith("refluid table: there are no tables in")


def test_head_shows_rows(folder, capsys):
    code, out, _ = run(capsys, "head", folder / "0" / "emb", "-n", "3")
    assert code == 0 and len(out.splitlines()) == 4 and len(out.splitlines()[1].split()) == 4
    code, out, _ = run(capsys, "head", folder / "0" / "emb", "--ids=-50,7,12345")
    assert code == 1 and out.splitlines()[-1] == "no rows    12345" and len(out.splitlines()) == 4
    code, _, err = run(capsys, "head", folder / "0" / "emb", "--ids=seven")
    assert code == 2 and "--ids must look like 3,17, not seven" in err


def test_export_writes_the_format_of_the_name(folder, capsys):
    code, out, _ = run(capsys, "export", folder / "0" / "emb", folder / "rows.npz", "--slots")
    assert code == 0 and out.startswith("wrote 100 rows to ")
    assert np.load(folder / "rows.npz")["Moment"].shape == (100, 3)
    code, _, err = run(capsys, "export", folder / "0" / "emb", folder / "rows")
    assert code == 2 and "or pass --to" in err
    assert run(capsys, "export", folder / "0" / "emb", folder / "rows", "--to", "parquet")[0] == 0
    code, _, err = run(capsys, "export", folder / "0" / "emb", folder / "rows", "--to", "csv")
    assert code == 2 and "not as csv" in err


def test_merge_makes_one_table_of_many_files_and_diff_finds_it_the_same(folder, capsys):
    code, out, _ = run(capsys, "merge", folder / "1" / "emb", folder / "merged" / "emb")
    assert code == 0 and "rows to " in out
    assert len(list((folder / "merged").iterdir())) == 2
    code, out, _ = run(capsys, "diff", folder / "merged" / "emb", folder / "1" / "emb")
    assert code == 0 and "differ     0 rows; the largest difference is 0\n" in out
    code, out, _ = run(capsys, "diff", folder / "0" / "emb", folder / "1" / "emb")
    assert code == 1 and "of row 7" in out and "only in A  " in out
    assert run(capsys, "merge", folder / "1" / "emb", folder / "merged" / "emb", "--weights-only")[0] == 0
    assert len(list((folder / "merged").iterdir())) == 2  # what was there is replaced
    assert "optimizer  none" in run(capsys, "inspect", folder / "merged" / "emb")[1]
    code, _, err = run(capsys, "merge", folder / "1" / "emb", folder / "0" / "emb")
    assert code == 2 and "choose another place to write" in err


@pytest.mark.parametrize("action", ["inspect", "head", "export", "merge", "diff"])
def test_a_table_that_is_missing_or_damaged_is_named(folder, capsys, action):
    more = {"export": ["out.npz"], "merge": ["out"], "diff": [folder / "0" / "emb"]}.get(action, [])
    code, _, err = run(capsys, action, folder / "nothing", *more)
    assert code == 2 and "there is no table" in err and "nothing" in err
    for path in (folder / "0").glob("*.rows"):
        path.write_bytes(path.read_bytes()[:-1])
    code, _, err = run(capsys, action, folder / "1" / "emb", *more)
    assert code == 2 and ".rows has" in err and "its manifest says" in err


def test_help_names_the_actions(capsys):
    with pytest.raises(SystemExit):
        main(["table", "--help"])
    out = capsys.readouterr().out
    for words in ("inspect", "head", "export", "merge", "diff", "push", "compares and publishes tables"):
        assert words in out
    with pytest.raises(SystemExit) as stopped:
        main(["table"])
    assert stopped.value.code == 2 and "required: ACTION" in capsys.readouterr().err
