#!/usr/bin/env bash
# Fine-tunes NLLB-200 (600M, distilled) for one direction on one GPU of 8 GB, and translates with it over lists.
#   examples/finetune_nllb/run.sh RELEASED RAW [OUT]
# RELEASED is a folder with the files of the release (names below; CHECKPOINT=... and so on name others), RAW one with
# {train,valid,test}.{eng_Latn,deu_Latn} (SOURCE and TARGET name other languages), untokenised, one sentence a line.
set -euo pipefail
recipe=finetune_nllb
checkpoint=checkpoint.pt
dictionary=dictionary.txt
spm=flores200_sacrebleu_tokenizer_spm.model
languages=langs.txt # all 202 in the order of the release, with commas or one a line
source=${SOURCE:-eng_Latn}
target=${TARGET:-deu_Latn}
# The task of the release. Its --add-data-source-prefix-tags is not a flag of fairseq: the three rows are found.
own=(--encoder-langtok src --decoder-langtok)
# Of the 600M model; it has to be what the checkpoint was trained with.
arch=(${ARCH:---arch transformer --share-all-embeddings --encoder-normalize-before --decoder-normalize-before
  --encoder-layers 12 --encoder-embed-dim 1024 --encoder-ffn-embed-dim 4096 --encoder-attention-heads 16
  --decoder-layers 12 --decoder-embed-dim 1024 --decoder-ffn-embed-dim 4096 --decoder-attention-heads 16
  --max-source-positions 512 --max-target-positions 512})
source "$(dirname "$0")/../finetune.sh" "$@"
