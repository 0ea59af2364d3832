import pytest

from hcep._files import refuse_existing, replacing, write_text
from hcep.errors import HCEPError


def test_a_file_is_written_with_its_folders(tmp_path):
    write_text(tmp_path / "new" / "table.md", "text\n")
    assert (tmp_path / "new" / "table.md").read_text() == "text\n"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["table.md"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "table.md"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half way"):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path):
    with replacing(path) as partial:
        partial.write_text("new, in pa")
        raise RuntimeError("half way")


def test_existing_files_are_refused_unless_overwritten(tmp_path):
    path = tmp_path / "table.md"
    refuse_existing(path, False, "--output")
    refuse_existing(None, False, "--output")
    path.write_text("old")
    refuse_existing(path, True, "--output")
    with pytest.raises(HCEPError, match=r"--output: '.*table.md' already exists; pass --overwrite to replace it"):
        refuse_existing(path, False, "--output")
    with pytest.raises(HCEPError, match=r"--output: '.*' is a folder; give the name of a file"):
        refuse_existing(tmp_path, True, "--output")
