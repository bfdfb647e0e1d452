"""Training, validation and decoding on a device that is not there.

The tests are those of on_a_device.py, in a process of their own: torch counts the devices there are at the first
gradient, and does not look again.
"""

import subprocess

from conftest import BIN, ROOT


def test_on_a_device():
    command = [BIN / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests" / "on_a_device.py"]
    result = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert result.returncode == 0 and " passed" in result.stdout, result.stdout[-5000:]
