"""The process in which another program translates, started with the Python of the peers' environment.

It is asked by lines of JSON and answers each with one: what the call has taken of the processor (all threads) and of
the clock, and the words of the best hypotheses. What a program prints by itself goes to stderr.
"""

import importlib.metadata
import json
import os
import sys
import time

opened = {}


def open_marian(name, options):
    """Args: options: of marian-decoder."""
    from pymarian import Translator

    translator = Translator(options)

    def translate(sentences, beam, length, parts):
        lines = [" ".join(words) for words in sentences]
        found = translator.translate(lines, beam_size=beam, mini_batch=-(-len(lines) // parts))
        return [line.split() for line in found]

    opened[name] = translate
    return {"version": importlib.metadata.version("pymarian")}


def open_ctranslate2(name, folder, kind, threads, listed):
    """Args: kind: of the weights; listed: by its vmap."""
    import ctranslate2

    translator = ctranslate2.Translator(folder, compute_type=kind, inter_threads=1, intra_threads=threads)

    def translate(sentences, beam, length, parts):
        limits = {"min_decoding_length": length, "max_decoding_length": length}
        found = translator.translate_batch(sentences, beam_size=beam, use_vmap=listed, **limits)
        return [result.hypotheses[0] for result in found]

    opened[name] = translate
    return {"version": ctranslate2.__version__}


def translate(name, **asked):
    wall, cpu = time.perf_counter(), time.process_time()
    words = opened[name](**asked)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "words": words}


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    actions = {"marian": open_marian, "ctranslate2": open_ctranslate2, "translate": translate}
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(actions[asked.pop("do")](**asked)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
