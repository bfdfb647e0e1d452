"""Is what is installed what lock.txt names, and are there advisories about it? (make audit)

audit.py PIP_AUDIT   exit code 1 if something is wrong, 2 if nothing is, but nobody could be asked about advisories
audit.py             compares with lock.txt only
"""

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCK = Path(__file__).resolve().parent.parent / "lock.txt"


def locked() -> dict[str, str]:
    """The version of each distribution that lock.txt names for this Python."""
    lines = [line.partition(" \\")[0] for line in LOCK.read_text(encoding="utf-8").splitlines() if line[:1].isalnum()]
    requirements = [Requirement(line) for line in lines]
    return {x.name: str(x.specifier)[2:] for x in requirements if x.marker is None or x.marker.evaluate()}


def differences(installed: dict[str, str], locked: dict[str, str]) -> list[str]:
    """What is installed and not locked like that; a build of the same version (2.13.0+cpu) is."""
    return [
        f"{name} {version} is installed, but lock.txt has {locked.get(name, 'none')}: run `make clean install`"
        for name, version in sorted(installed.items())
        if locked.get(name) != Version(version).public
    ]


def installed() -> dict[str, str]:
    found = {canonicalize_name(x.name): x.version for x in importlib.metadata.distributions()}
    return {name: version for name, version in found.items() if name != "lv-fairseq"}


def advisories(pip_audit: str) -> list[str]:
    """The advisories that pip-audit finds; OSError if nobody could be asked about every one of the distributions."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "advisories.json"
        options = ["--requirement", LOCK, "--disable-pip", "--strict", "--progress-spinner", "off"]
        result = subprocess.run(
            [pip_audit, *options, "--format", "json", "--output", out], stderr=subprocess.PIPE, text=True
        )
        if not out.exists():
            said = result.stderr.strip().splitlines() or [f"pip-audit ended with {result.returncode}"]
            raise OSError(said[-1].removeprefix("ERROR:pip_audit._cli:"))
        audited = json.loads(out.read_text(encoding="utf-8"))["dependencies"]
    return [
        f"{x['name']} {x['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for x in audited
        for hole in x["vulns"]
    ]


def main(pip_audit: str | None = None) -> None:
    wrong, unknown = differences(installed(), locked()), ""
    if not wrong:
        print(f"{len(installed())} distributions are installed, all as in lock.txt.")
    try:
        if pip_audit is not None:
            found = advisories(pip_audit)
            print(f"{len(found)} advisories.")
            wrong += found
    except OSError as reason:
        unknown = (
            f"Nothing is known about advisories, since nobody could be asked: {reason}. Where that cannot be, "
            "`make audit OFFLINE=1` compares with lock.txt only."
        )
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(unknown, file=sys.stderr, end="\n" if unknown else "")
    sys.exit(1 if wrong else 2 if unknown else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
