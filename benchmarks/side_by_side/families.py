"""Models of one size and vocabulary, with random weights: ours, fairseq's, and those of other programs."""

import contextlib
from argparse import Namespace
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import numpy as np
from decoding import JOINED, Run, make_data, make_lexicon, translations

from lv_fairseq.errors import UserError
from lv_fairseq.models.families import pack_model
from side_by_side import marian
from side_by_side.ctranslate import convert, ctranslate2_at
from side_by_side.peers import Peer, PeerError, Worker
from side_by_side.rows import peer_packages, peer_python
from side_by_side.systems import OfFairseq, System, share_with_corpus

ABSENT = "absent: make .venv-peers/.installed"
WITHOUT = "without --pack-weights"
OF_THREADS = "its threads take a batch each: a batch is cut for them"
Systems = Dict[str, List[System]]  # by what they choose from: "all words" or "lists"


class Family:
    """
    Args:
        folder: for data and models
        arch: rnnsearch or transformer
        words: of the vocabulary, of each language or of both together
        frequent: K
        peers: whether other programs take part
    """

    def __init__(self, folder: Path, args: Namespace, arch: str, words: int, frequent: int, peers: bool = True):
        folder.mkdir()
        self.folder, self.args, self.arch, self.words, self.frequent = folder, args, arch, words, frequent
        self.joined, self.peers = arch in JOINED, peers
        make_data(folder / "small", frequent + 4, self.joined)
        make_data(folder / "large", words, self.joined)
        self.translated = words // 2 if self.joined else words
        make_lexicon(folder / "lexicon", self.translated, args.per_word)
        random = np.random.default_rng(2)
        drawn = random.integers(0, max(frequent // 2 - 4, 1), (args.sentences, args.length))
        self.sentences = [[f"src{i}" for i in row] for row in drawn]
        self.own = self._of_fairseq()
        self.absent: Dict[str, List[Tuple[str, str]]] = {"all words": [], "lists": []}  # names, and why
        self.opening: Dict[str, List[Dict]] = {"all words": [], "lists": []}  # peers, with what is known of them
        for name, make in (("Marian", self._make_marian), ("CTranslate2", self._make_ctranslate2)):
            if peers and not (name == "CTranslate2" and arch != "transformer"):  # it has no other models
                make()

    @property
    def title(self) -> str:
        sizes = self.own["all words"][0].run.sizes
        dims = [sizes["decoder_embed_dim"], sizes.get("decoder_hidden_size", sizes.get("decoder_ffn_embed_dim"))]
        return f"decoding with {self.arch}, {dims[0]} and {dims[1]} dims, {self.words:,} words"

    def _run(self, arch: str = "", data: str = "large", **options) -> Run:
        arch = arch or self.arch
        if arch == "transformer":
            sizes = {"layers": self.args.layers, "attention_heads": self.args.heads}
            options |= {f"{side}_{name}": n for name, n in sizes.items() for side in ("encoder", "decoder")}
        made_like = Namespace(arch=arch, scale=self.args.scale, beam=1, length=self.args.length)
        return Run(self.folder / data, made_like, **options)

    def _of_fairseq(self) -> Systems:
        lists = dict(
            lexicon=self.folder / "lexicon",
            candidate_frequent=self.frequent,
            candidate_per_word=self.args.per_word,
            candidate_retries=0,  # all sentences are cut off here: they are not to be decoded again
            **({"frequent_words": self.folder / "large" / "frequent"} if self.joined else {}),
        )
        large, plain = self._run(), self._run()
        pack_model(large.model)
        listed = self._run(like=large, **lists)
        share_with_corpus(listed, self.sentences)
        found: Systems = {"all words": [OfFairseq("lv_fairseq", large, ours=True)]}
        found["all words"] += [OfFairseq(f"lv_fairseq, {WITHOUT}", plain, same=True)]
        found["lists"] = [OfFairseq("lv_fairseq, a list a sentence", listed, scope="sentence", ours=True)]
        plain = self._run(like=plain, **lists)
        found["lists"] += [OfFairseq(f"lv_fairseq, a list a sentence, {WITHOUT}", plain, scope="sentence", same=True)]
        found["lists"] += [OfFairseq("lv_fairseq, a list a batch", listed, scope="batch")]
        found["lists"][-1].for_batches = True
        corpus = f"lv_fairseq, a list for {len(self.sentences)} sentences"
        found["lists"] += [OfFairseq(corpus, listed, scope="corpus")]
        small = self._run(data="small")
        pack_model(small.model)
        name = f"lv_fairseq, a model of {self.frequent:,} words"
        found["lists"].append(OfFairseq(name, small, note="as if nothing but K words were there"))
        if self.peers:
            rnn = self.arch == "rnnsearch"
            alone = self._run("lstm" if rnn else "", task="translation")
            found["all words"].append(OfFairseq("fairseq, lstm" if rnn else "fairseq alone", alone, peer=True))
            found["all words"][-1].same = not rnn
        return found

    def _make_marian(self) -> None:
        kind = "s2s" if self.arch == "rnnsearch" else "transformer"
        names = {"all words": f"Marian, {kind}", "lists": f"Marian, {kind}, shortlist"}
        python = peer_python(self.args.peers)
        if python is None or not list(peer_packages(self.args.peers).glob("pymarian")):
            why = ABSENT if python is None else f"{ABSENT} (there is no pymarian for this Python)"
            return self._absent(names, why)
        sizes = marian.sizes_of(self.arch, self.own["all words"][0].run.sizes, self.args)
        vocabularies = marian.make_vocabularies(self.folder / "large", self.folder, self.joined)
        try:
            model = marian.make_model(python, self.folder, vocabularies, sizes)
        except UserError as error:
            return self._absent(names, f"absent: {error}")
        lexicon = self.folder / "marian.lexicon"
        with open(lexicon, "wb") as file:
            for sources, targets in translations(self.translated, self.args.per_word):
                file.writelines(b"%s %s 0.1\n" % pair for pair in zip(targets, sources))
        for which, name in names.items():
            shortlist = [lexicon, self.frequent, self.args.per_word] if which == "lists" else []
            options = {threads: marian.options_of(model, vocabularies, threads, shortlist) for threads in (1, 2)}
            self.opening[which].append({"name": name, "do": "marian", "options": options})

    def _make_ctranslate2(self) -> None:
        kinds = ("float32", "int8")
        if peer_python(self.args.peers) is None or ctranslate2_at(peer_packages(self.args.peers)) is None:
            for kind in kinds:
                self._absent({"all words": f"CTranslate2 {kind}", "lists": f"CTranslate2 {kind}, vmap"}, ABSENT)
            return
        (alone,) = (system.run for system in self.own["all words"] if system.peer)
        vmap, frequent = self.folder / "vmap", self.folder / "large" / "frequent"
        common = [line.rpartition(" ")[0] for line in frequent.read_text().splitlines()[: self.frequent]]
        with open(vmap, "w", encoding="utf-8") as file:
            file.write(f"\t{' '.join(common)}\n")
            for sources, targets in translations(self.translated, self.args.per_word):
                for i in range(0, len(sources), self.args.per_word):
                    found = b" ".join(targets[i : i + self.args.per_word])
                    file.write(f"{sources[i].decode()}\t{found.decode()}\n")
        for kind in kinds:
            convert(alone.model, alone.task.target_dictionary, vmap, self.folder / kind, kind)
            for which in ("all words", "lists"):
                name = f"CTranslate2 {kind}{', vmap' * (which == 'lists')}"
                asked = {"do": "ctranslate2", "folder": str(self.folder / kind), "kind": kind}
                self.opening[which].append({"name": name, "listed": which == "lists", **asked})

    def _absent(self, names: Dict[str, str], why: str) -> None:
        for which, name in names.items():
            if (name, why) not in self.absent[which]:
                self.absent[which].append((name, why))

    @contextlib.contextmanager
    def with_peers(self, threads: int, versions: Dict[str, str]) -> Iterator[Systems]:
        """In this block other programs are there, each kind in a process."""
        python, found = peer_python(self.args.peers), {which: list(mine) for which, mine in self.own.items()}
        with contextlib.ExitStack() as stack:
            workers: Dict[str, Worker] = {}
            for which, all_asked in self.opening.items():
                for asked in all_asked:
                    program = asked["do"]
                    if program not in workers:
                        workers[program] = stack.enter_context(Worker(python, threads))
                    try:
                        found[which].append(self._opened(workers[program], threads, asked))
                    except PeerError as error:
                        self._absent({which: asked["name"]}, f"absent: {error}")
                        continue
                    versions[program] = found[which][-1].version
            yield found

    def _opened(self, worker: Worker, threads: int, asked: Dict) -> Peer:
        asked = dict(asked)
        name, own = asked.pop("name"), {"threads": threads}
        if asked["do"] == "marian":
            own = {"options": asked["options"][threads]}
        cut = asked["do"] == "marian" and threads > 1
        note = OF_THREADS if cut else "8-bit weights" if asked.get("kind") == "int8" else ""
        return Peer(name, worker, self.args.length, threads if cut else 1, {**asked, **own}, note=note)
