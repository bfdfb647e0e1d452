"""lv-serve under many clients at once: are requests lost, how long do they take, does memory grow, and are the answers
those of fairseq-interactive?

    python benchmarks/serving.py                                    # a small model of its own, 200 clients, a minute
    python benchmarks/serving.py DATA --path MODEL --lexicon LEXICON --candidate-frequent 5000 --text TEXT

Flags that are not its own go to both commands. Each client has one connection and asks for its next sentence as soon as
it has an answer, so that as many requests as there are clients wait all the time. A request is lost if it has no
answer, or another one than a translation.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from decoding import Run, make_data, make_lexicon, save

import lv_fairseq
from lv_fairseq.processes import end, start

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SENTENCES = 200  # different ones
WORDS, FREQUENT, PER_WORD = 2000, 200, 5  # of its own model
PATIENCE = 300  # seconds until a server has loaded its model, or a busy machine has translated a sentence


def parse_args(argv: Optional[Sequence[str]]) -> Tuple[Namespace, List[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="a folder of fairseq-preprocess; give --path MODEL with it")
    parser.add_argument("--clients", type=int, default=200, help="how many ask at the same time (default: 200)")
    parser.add_argument("--seconds", type=float, default=60, help="for how long (default: 60)")
    parser.add_argument("--text", type=Path, help="what they ask (default: words of the dictionary)")
    return parser.parse_known_args(argv)


def make_model(folder: Path) -> List[str]:
    """The flags of a small model with random weights, that lie so far apart that rounding does not decide."""
    make_data(folder / "data", WORDS, joined=False)
    make_lexicon(folder / "lexicon", WORDS, PER_WORD)
    sizes = Namespace(arch="rnnsearch", scale=0.03, beam=5, length=12)
    run, drawn = Run(folder / "data", sizes), np.random.default_rng(1)
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            scale = 0.2 if name.startswith("decoder.output_projection") else 0.5
            parameter.copy_(torch.from_numpy(drawn.normal(0, scale, parameter.shape)))
        run.model.decoder.output_projection.bias[run.task.target_dictionary.eos()] += 8
    save(folder / "model.pt", run)
    lists = ["--lexicon", folder / "lexicon", "--candidate-frequent", FREQUENT, "--candidate-per-word", PER_WORD]
    named = ["--path", folder / "model.pt", "--unk-replacement", "copy", "--max-len-b", 12, "--candidate-retries", 0]
    return [str(x) for x in (folder / "data", "-s", "src", "-t", "tgt", *named, *lists)]


def sentences_of(text: Optional[Path], data: Path) -> List[str]:
    if text is not None:
        return [line.strip() for line in text.read_text(encoding="utf-8").splitlines()[:SENTENCES]]
    source = sorted(data.glob("*.*-*.*.idx"))[0].name.split(".")[-3].partition("-")[0]
    words = [line.partition(" ")[0] for line in (data / f"dict.{source}.txt").read_text(encoding="utf-8").splitlines()]
    draw = random.Random(1)
    return [" ".join(draw.choices([*words[:1000], "Unknown1"], k=draw.randint(3, 12))) for _ in range(SENTENCES)]


def interactive(flags: Sequence[str], sentences: Sequence[str]) -> List[str]:
    """What fairseq-interactive answers."""
    plugin = ("--user-dir", ROOT / "lv_fairseq", *(() if "--task" in flags else ("--task", "lv_translation")))
    command = [BIN / "fairseq-interactive", *flags, *plugin, "--buffer-size", 1000, "--batch-size", 32]
    typed = "".join(f"{sentence}\n" for sentence in sentences)
    done = subprocess.run(list(map(str, command)), input=typed, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        sys.exit(done.stderr)
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("D-")]
    return [text for _, text in sorted((int(number[2:]), text) for number, _, text in lines)]


class Seen:
    """What all clients have seen."""

    def __init__(self):
        self.seconds: List[float] = []
        self.batches: List[int] = []
        self.lost: List[str] = []
        self.wrong = 0
        self.memory: Dict[str, int] = {}


async def client(port: int, until: float, sentences: Sequence[str], expected: Sequence[str], draw, seen: Seen) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        place = draw.randrange(len(sentences))
        began = time.monotonic()
        try:
            status, answer = await ask(reader, writer, {"text": sentences[place]})
        except (OSError, EOFError, ValueError) as error:
            seen.lost.append(repr(error))
            return
        seen.seconds.append(time.monotonic() - began)
        if status != 200:
            seen.lost.append(f"{status}: {answer}")
            continue
        (translation,) = answer["translations"]
        seen.wrong += translation["text"] != expected[place]
        seen.batches.append(translation["batch"])
    writer.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, given: Dict) -> Tuple[int, Dict]:
    body = json.dumps(given).encode()
    writer.write(b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE).group(1))
    return int(head.split(" ", 2)[1]), json.loads(await reader.readexactly(length))


async def load(args: Namespace, port: int, pid: int, sentences: List[str], expected: List[str]) -> Seen:
    seen, until = Seen(), time.monotonic() + args.seconds

    async def watch():
        await asyncio.sleep(args.seconds / 4)
        seen.memory["at a quarter"] = resident(pid)

    draws = (random.Random(number) for number in range(args.clients))
    clients = (client(port, until, sentences, expected, draw, seen) for draw in draws)
    await asyncio.gather(watch(), *clients)
    seen.memory["at the end"] = resident(pid)
    return seen


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_for_port(log: Path, server: subprocess.Popen) -> int:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:(\d+) answers", log.read_text())
        if found:
            return int(found.group(1))
        time.sleep(0.1)
    sys.exit(f"the server did not start: {log.read_text()[-2000:]}")


def show(seen: Seen, seconds: float) -> None:
    took = sorted(1000 * x for x in seen.seconds)
    percentile = lambda share: took[min(len(took) - 1, int(share * len(took)))]
    print(f"requests  {len(took) + len(seen.lost):,}")
    print(f"lost  {len(seen.lost):,}")
    print(f"p50, p99 in ms  {percentile(0.5):.0f}  {percentile(0.99):.0f}")
    print(f"sentences a second  {len(took) / seconds:.0f}")
    print(f"sentences in a batch  {statistics.mean(seen.batches):.1f}")
    quarter, last = seen.memory.values()
    print(f"memory in MB, at a quarter and at the end  {quarter / 2**20:.1f}  {last / 2**20:.1f}")
    print(f"other than fairseq-interactive  {seen.wrong:,}")
    for line in dict.fromkeys(seen.lost[:5]):
        print(line)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args, flags = parse_args(argv)
    lv_fairseq.register()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        flags = make_model(folder) if args.data is None else [args.data, *flags]
        flags += [] if "--cpu" in flags or torch.cuda.is_available() else ["--cpu"]
        sentences = sentences_of(args.text, Path(flags[0]))
        expected = interactive(flags, sentences)
        log = folder / "log"
        with open(log, "wb") as file:
            command = [
                sys.executable,
                "-m",
                "lv_fairseq.commands.serve",
                *flags,
                "--port",
                "0",
                "--timeout",
                str(PATIENCE),
            ]
            server = start(command, stderr=file, stdout=file, cwd=ROOT)
            try:
                port = wait_for_port(log, server)
                print(f"{args.clients} clients, {args.seconds:g} s, {len(set(sentences))} different sentences")
                began = time.monotonic()
                seen = asyncio.run(load(args, port, server.pid, sentences, expected))
                show(seen, time.monotonic() - began)
                server.terminate()
                server.wait(PATIENCE)
            finally:
                end(server)
        print(f"exit code after SIGTERM  {server.returncode}")


if __name__ == "__main__":
    main()
