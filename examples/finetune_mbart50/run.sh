#!/usr/bin/env bash
# Fine-tunes mBART-50 for one direction on one GPU of 8 GB, and translates with it over lists.
#   examples/finetune_mbart50/run.sh RELEASED RAW [OUT]
# RELEASED is a folder with the files of the release (names below; CHECKPOINT=... and so on name others), RAW one with
# {train,valid,test}.{en_XX,de_DE} (SOURCE and TARGET name other languages), untokenised, one sentence a line.
set -euo pipefail
recipe=finetune_mbart50
checkpoint=model.pt
dictionary=dict.en_XX.txt # the same for all languages
spm=sentence.bpe.model
languages=ML50_langs.txt # all 52 in the order of the release, with commas or one a line
source=${SOURCE:-en_XX}
target=${TARGET:-de_DE}
own=(--encoder-langtok src --decoder-langtok --lang-tok-style mbart)
# It has to be what the checkpoint was trained with.
arch=(${ARCH:---arch mbart_large --layernorm-embedding --encoder-normalize-before --decoder-normalize-before})
source "$(dirname "$0")/../finetune.sh" "$@"
