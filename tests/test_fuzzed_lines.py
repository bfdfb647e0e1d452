"""Whatever bytes come, fairseq-interactive answers every line once, in order, and its memory stays what it is."""

import os
import random
import re
import statistics
import subprocess
import time
from pathlib import Path

import faults
import pytest
from conftest import BIN, PLUGIN, ROOT, run

# bytes that memory may grow by, at all and for each line: what remembers 200 bytes a line grows by more
SOME, EACH = 3_000_000, 60
# so that memory which is given back is not counted
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
SPECIALS = ["<unk>", "</s>", "<pad>", "<s>", "<Lua heritage>", "madeupword0000", "@@", "\u2581"]
ODD = ["\0", "\r", "\t", "\x0b", "\x0c", "\x1b[31m", "\x1c", "\x7f", "\x85", "\xa0", "\u2028", "\u2029", "\u3000"]
ODD += ["\ufeff", "\ufffd", "\u200b", "\u202e", "e\u0301", "\U0001f600", "\U0010ffff", "İ", "ß", "ﬀ"]
SURROGATE = "\ud800".encode("utf-8", "surrogatepass")


def words(chance: random.Random, count: int) -> str:
    """Some that a network knows, some that a lexicon knows, many that nobody has ever seen."""
    kinds = (lambda: f"s{chance.randrange(40)}", lambda: f"rare{chance.randrange(15)}")
    kinds += (lambda: f"{chance.choice(['Mc', 'Ł', '東', '1'])}{chance.randrange(10**12)}",)
    return " ".join(chance.choice(kinds)() for _ in range(count))


def line(chance: random.Random) -> bytes:
    """Bytes without a line's end."""
    kind = chance.random()
    if kind < 0.5:
        text = words(chance, chance.randint(1, 9)).encode()
    elif kind < 0.65:
        text = chance.randbytes(chance.randint(1, 40))
    elif kind < 0.75:
        parts = [words(chance, 1), *chance.choices(ODD + SPECIALS, k=chance.randint(1, 6)), words(chance, 2)]
        text = chance.choice(["", " "]).join(chance.sample(parts, len(parts))).encode()
    elif kind < 0.8:
        text = b" ".join([*map(str.encode, chance.choices(SPECIALS, k=chance.randint(1, 4)))])
    elif kind < 0.85:
        text = chance.choice([b"", b" ", b"\r", b"\t\t", b"\xe3\x80\x80", b"\xef\xbb\xbf", b"\0"])
    elif kind < 0.9:
        text = words(chance, 2).encode() + SURROGATE + b"\xff\xc0\x80" + words(chance, 1).encode()
    elif kind < 0.998:
        text = words(chance, chance.randint(5, 12)).encode() + chance.choice([b"\r", b" ", b"\0", b""])
    elif kind < 0.9995:
        text = b"x" * chance.randint(1000, 30_000)
    else:
        text = words(chance, chance.randint(500, 3000)).encode()
    return text.replace(b"\n", b" ")


def flags(names: Path, buffer: int) -> list:
    decode = ("--beam", 1, "--max-len-a", 0, "--max-len-b", 12, "--path", names / "model.pt", "--cpu")
    lists = ("--lexicon", names / "lexicon", "--candidate-frequent", 20, "--candidate-per-word", 3)
    buffering = ("--buffer-size", buffer, "--max-tokens", 3000)
    return [names / "data", *PLUGIN, *decode, *lists, "--unk-replacement", "lexicon", *buffering]


def answers(printed: bytes) -> list[int]:
    """The numbers of the lines that have a translation, in the order in which these come."""
    return [int(number) for number in re.findall(rb"^D-(\d+)\t", printed, re.MULTILINE)]


@pytest.mark.parametrize("buffer", [1, 64])
def test_some_lines_of_any_bytes_are_answered_once_and_in_order(names, buffer):
    chance = faults.chance("lines", buffer)
    text = b"".join(line(chance) + b"\n" for _ in range(60 if buffer == 1 else 300))
    ended = run("fairseq-interactive", *flags(names, buffer), stdin=text.decode("utf-8", "surrogateescape"))
    assert answers(ended.stdout.encode()) == list(range(text.count(b"\n")))


def resident(pid: int) -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def watch(process: subprocess.Popen, out: Path) -> list[tuple[int, int]]:
    """Lines answered so far, and bytes of memory, again and again until the process ends."""
    seen, samples, rest = 0, [], b""
    with open(out, "rb") as printed:
        while process.poll() is None:
            text = rest + printed.read()
            seen += text.count(b"\nD-")
            rest = text[-2:]
            try:
                samples.append((seen, resident(process.pid)))
            except OSError:  # it has just ended
                break
            time.sleep(0.1)
    return samples


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory in /proc")
@pytest.mark.parametrize("buffer, share", [(1, 0.05), (1024, 0.95)])
def test_many_lines_of_any_bytes_are_answered_in_flat_memory(names, tmp_path, buffer, share):
    chance, lines = faults.chance("many lines", buffer), round(faults.LINES * share)
    given, out = tmp_path / "lines", tmp_path / "out"
    with open(given, "wb") as file:
        for _ in range(lines):
            file.write(line(chance) + b"\n")
    command = [str(x) for x in (BIN / "fairseq-interactive", *flags(names, buffer))]
    began = time.monotonic()
    with open(given, "rb") as stdin, open(out, "wb") as stdout, open(tmp_path / "err", "wb") as stderr:
        how = dict(cwd=ROOT, env={**os.environ, **MALLOC}, stdin=stdin, stdout=stdout, stderr=stderr)
        process = subprocess.Popen(command, **how)
        try:
            samples = watch(process, out)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, (tmp_path / "err").read_text(errors="replace")[-2000:]
    assert answers(out.read_bytes()) == list(range(lines))
    early, late = (
        statistics.median(memory for seen, memory in samples if start * lines <= seen <= end * lines)
        for start, end in ((0.3, 0.5), (0.8, 1.0))
    )
    most = max(memory for _, memory in samples)
    figures = dict(lines=lines, megabytes_early=early / 1e6, megabytes_late=late / 1e6, megabytes_most=most / 1e6)
    faults.report(f"random lines, --buffer-size {buffer}", **figures, seconds=time.monotonic() - began)
    assert late - early < SOME + EACH * 0.5 * lines, figures
