"""What is handed out: a wheel that works outside of the clone, a unit for systemd."""

import hashlib
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from pathlib import Path

import pytest

import appliance
from tests.support import judge, wire
from tests.support.serving import serving

REPOSITORY = Path(__file__).resolve().parents[2]
UNIT = REPOSITORY / "packaging" / "odradek.service"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy, so that nothing appears in the clone."""
    work = tmp_path_factory.mktemp("wheel")
    sources = work / "sources"
    for name in ("appliance", "broker", "dashboard", "spark_tasks", "templates", "static"):
        shutil.copytree(
            REPOSITORY / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "build")
        )
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(REPOSITORY / name, sources)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-build-isolation", "--no-index", "--wheel-dir", work / "dist", sources],
        check=True, cwd=work,
    )  # fmt: skip
    (made,) = (work / "dist").glob("odradek-*.whl")
    return made


@pytest.mark.slow
def test_the_wheel_carries_version_and_pages(wheel: Path) -> None:
    assert wheel.name == f"odradek-{appliance.VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for directory in ("templates", "static"):
        for path in (REPOSITORY / directory).rglob("*"):
            if path.is_file():
                assert f"appliance/share/{path.relative_to(REPOSITORY)}" in names
    assert "dashboard/spark/lock.json" in names
    assert not [name for name in names if name.startswith("tests/")]


@pytest.mark.slow
def test_what_make_run_downloads_is_at_most_eighty_megabytes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes",
         "--no-deps", "--dest", tmp_path, "--requirement", REPOSITORY / "requirements.lock"],
        check=True,
    )  # fmt: skip
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) > 20
    assert sum(sizes.values()) <= 80_000_000, sizes


@pytest.mark.slow
def test_an_installed_wheel_serves_broker_and_dashboard(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", installed], check=True)
    packages = Path(
        sysconfig.get_path("purelib", "venv", {"base": str(installed), "platbase": str(installed)})
    )
    # The dependencies are the clone's; its own packages, which lead back to the clone, stay out.
    shared = tmp_path / "shared"
    shared.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "odradek" not in path.name.lower() and path.suffix != ".pth":
            (shared / path.name).symlink_to(path)
    (packages / "shared.pth").write_text(f"{shared}\n")
    # PYTHONPATH, which tests of Spark set, may lead to the clone: then pip has nothing to install.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ODRADEK_", "PYTHON", "DJANGO_", "DATABASE_"))
    }
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", installed / "bin" / "python", "install", "--quiet",
         "--disable-pip-version-check", "--no-deps", "--no-index", wheel],
        env=environment, check=True, cwd=tmp_path,
    )  # fmt: skip
    command = str(installed / "bin" / "odradek")
    told = subprocess.run(
        [command, "version"],
        env=environment, cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout.startswith(f"odradek {appliance.VERSION} (python")
    place = subprocess.run(
        [installed / "bin" / "python", "-c", "import appliance; print(appliance.__file__)"],
        env=environment, cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert Path(place.stdout).is_relative_to(installed)
    assert "commit" not in told.stdout  # the sources were a copy, not a clone
    kafka, web = judge.free_port(), judge.free_port()
    where = ["--listen", f"127.0.0.1:{kafka}", "--web", f"127.0.0.1:{web}"]
    told_nobody = environment | {"ODRADEK_BROKER_METRICS": ""}
    with serving([command, "serve", "--data", tmp_path / "data", *where], tmp_path, told_nobody):
        assert wire.answers(("127.0.0.1", kafka))
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/login/") as page:
            content = page.read().decode()
        style = next(
            piece for piece in content.split('"') if piece.endswith("css") and "/static/" in piece
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{web}{style}") as answer:
            assert answer.read() == (REPOSITORY / "static" / style.split("/", 3)[3]).read_bytes()


def test_a_release_tells_what_is_in_it(tmp_path: Path) -> None:
    """Each package of the lock file, with the digests that pip compares; and sums that hold."""
    release = runpy.run_path(str(REPOSITORY / "packaging" / "release.py"))
    lock = (REPOSITORY / "requirements.lock").read_text()
    spark = json.loads((REPOSITORY / "dashboard" / "spark" / "lock.json").read_text())
    parts = runpy.run_path(str(REPOSITORY / "packaging" / "binary" / "parts.py"))["parts"]
    unknown = tmp_path / "libunheard.so.1"
    unknown.write_bytes(b"of nobody")
    bill = release["bill_of_materials"]("1.2", lock, spark, parts([unknown], [unknown], "9.8"))
    of_machine = {each["purl"]: each for each in bill["components"] if "generic/" in each["purl"]}
    assert set(of_machine) == {
        f"pkg:generic/cpython@{platform.python_version()}", "pkg:generic/libunheard.so.1"
    }  # fmt: skip
    (digest,) = of_machine["pkg:generic/libunheard.so.1"]["hashes"]
    assert digest["content"] == hashlib.sha256(b"of nobody").hexdigest()
    assert bill["metadata"]["component"]["version"] == "1.2"
    optional = {each["purl"] for each in bill["components"] if each.get("scope") == "optional"}
    assert f"pkg:pypi/pyspark@{spark['spark']}" in optional
    assert len(optional) == len(spark["python"]) + len(spark["jars"])
    (clients,) = (each for each in optional if "/kafka-clients@" in each)
    assert clients.startswith("pkg:maven/org.apache.kafka/kafka-clients@")
    packages = [
        each
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/")
        and each["purl"] not in optional
        and each["name"] != "pip"
    ]
    assert len(packages) == len(re.findall(r"^\S+==", lock, re.MULTILINE))
    assert sum(len(each["hashes"]) for each in packages) == lock.count("--hash=sha256:")
    assert {"django", "uvloop", "kio"} <= {each["name"] for each in packages}
    (tmp_path / "odradek").write_bytes(b"one")
    (tmp_path / "odradek-1.2-py3-none-any.whl").write_bytes(b"two")
    (tmp_path / "notes").write_bytes(b"three")
    (tmp_path / "SHA256SUMS").write_text(release["checksums"](tmp_path))
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["odradek: OK", "odradek-1.2-py3-none-any.whl: OK"]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this machine is no Debian")
def test_libraries_of_debian_are_told_by_package_and_version() -> None:
    parts = runpy.run_path(str(REPOSITORY / "packaging" / "binary" / "parts.py"))["parts"]
    place = subprocess.run(
        ["cc", "-print-file-name=libc.so.6"], check=True, capture_output=True, text=True
    ).stdout.strip()
    form = "${Version} ${Architecture}"
    version, architecture = subprocess.run(
        ["dpkg-query", "-W", "-f", form, "libc6"], check=True, capture_output=True, text=True
    ).stdout.split()
    (libc,) = (each for each in parts([], [Path(place)], "9.8") if each["name"] == "libc6")
    assert libc["version"] == version
    encoded = version.replace("+", "%2B")
    assert libc["purl"] == f"pkg:deb/debian/libc6@{encoded}?arch={architecture}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Only the program's path is another one: systemd looks whether it is there."""
    unit = tmp_path / "odradek.service"
    unit.write_text(UNIT.read_text().replace("/opt/odradek/bin/odradek", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "odradek.service" not in done.stderr


def test_the_unit_stops_in_order_and_is_nobody_special() -> None:
    lines = UNIT.read_text().splitlines()
    for line in ("KillMode=mixed", "User=odradek", "NoNewPrivileges=yes", "LimitNOFILE=1048576"):
        assert line in lines


def test_postgresql_and_redis_are_shipped_as_they_are_tested() -> None:
    shipped = (REPOSITORY / "requirements-cluster.lock").read_text().splitlines()
    tested = set((REPOSITORY / "requirements-dev.lock").read_text().splitlines())
    assert [line for line in shipped if not line.startswith(("#", "    #"))]
    assert set(shipped[1:]) <= tested
