import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import compiled
from broker.compiled import build

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.interpreted


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for builds; whatever a test installs is taken out again."""
    monkeypatch.setattr(compiled, "BUILD_DIRECTORY", tmp_path)
    monkeypatch.setattr(compiled, "reason", None)
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    before = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = before


def write_build(directory: Path, digest: str, shared: bytes | None, stamp: int = -1) -> None:
    """A manifest, and a shared library made of these bytes."""
    file = "made_up__mypyc.so"
    manifest = compiled.Manifest(digest, stamp, "made_up__mypyc", {"made_up__mypyc": file})
    (directory / compiled.MANIFEST).write_text(json.dumps(manifest._asdict()))
    if shared is not None:
        (directory / file).write_bytes(shared)


def finders() -> list[compiled.CompiledFinder]:
    return [each for each in sys.meta_path if isinstance(each, compiled.CompiledFinder)]


def test_without_a_build_the_sources_run(directory: Path) -> None:
    assert compiled.install() == compiled.reason == "not built"
    assert finders() == []


def test_a_build_of_other_sources_is_set_aside(directory: Path) -> None:
    write_build(directory, "0" * 64, b"")
    assert compiled.install() == "built from other sources"
    assert not compiled.is_current()
    assert finders() == []


def test_sources_that_look_the_same_are_not_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_build(directory, "unread", b"", compiled.source_stamp())
    monkeypatch.setattr(compiled, "source_digest", None)
    assert compiled.is_current()


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_a_build_that_cannot_be_loaded_is_set_aside(directory: Path, content: bytes | None) -> None:
    write_build(directory, compiled.source_digest(), content)
    assert compiled.is_current()
    assert str(compiled.install()).startswith("the build cannot be loaded: ")
    assert finders() == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"digest": "x"}'])
def test_a_torn_manifest_is_no_build(directory: Path, text: str) -> None:
    (directory / compiled.MANIFEST).write_text(text)
    assert compiled.install() == "not built"


def test_the_switch_leaves_a_build_unused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.SWITCH, "0")
    write_build(directory, compiled.source_digest(), b"")
    assert compiled.install() == "ODRADEK_COMPILED=0"


def test_the_digest_changes_with_any_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_BROKER", tmp_path)
    (tmp_path / "storage").mkdir()
    seen, stamps = set(), set()
    for name, text in [
        ("a.py", "x = 1"),
        ("a.py", "x = 2"),
        ("storage/b.py", ""),
        ("storage/b.py", "x = 1"),
    ]:
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1_000_000_000 + len(seen),) * 2)
        seen.add(compiled.source_digest())
        stamps.add(compiled.source_stamp())
    assert len(seen) == len(stamps) == 4
    os.rename(tmp_path / "a.py", tmp_path / "c.py")
    assert compiled.source_digest() not in seen
    assert compiled.source_stamp() not in stamps


def test_every_hot_module_is_there() -> None:
    for source in build.hot_sources():
        assert (REPOSITORY / source).is_file(), source


def test_what_is_missing_is_told_and_does_no_harm_if_possible_is_asked(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.main([]) == 1
    assert build.main(["--if-possible"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told == ["odradek: the hot path stays interpreted: there is no C compiler"] * 2


def test_without_mypy_it_says_so(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if any("C compiler" in line or "headers" in line for line in _missing_tools()):
        pytest.skip("there is no C compiler here")
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    assert build.main([]) == 1
    assert "mypy is not installed" in capsys.readouterr().err


def _missing_tools() -> list[str]:
    try:
        build._check_tools()
    except build.CannotCompile as error:
        return [str(error)]
    return []


def test_the_finder_knows_only_what_it_was_given(tmp_path: Path) -> None:
    finder = compiled.CompiledFinder({"made_up": tmp_path / "made_up.so"})
    assert finder.find_spec("other", None) is None
    spec = finder.find_spec("made_up", None)
    assert spec is not None
    assert spec.origin == str(tmp_path / "made_up.so")
    assert isinstance(spec.loader, importlib.machinery.ExtensionFileLoader)
