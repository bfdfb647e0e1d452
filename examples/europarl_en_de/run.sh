#!/usr/bin/env bash
# The paper's table on line-aligned text, sized for two CPU cores.
#   examples/europarl_en_de/run.sh RAW [OUT] [PAIRS] [CONFIG]
# RAW is a folder with train.en, train.de, dev.en, dev.de, test.en and test.de, untokenised, one sentence a line.
set -euo pipefail
source "$(dirname "$0")/../start.sh"
if [ $# -lt 1 ]; then
  echo "usage: $0 RAW [OUT] [PAIRS] [CONFIG]" >&2
  exit 2
fi
raw=$(realpath -m "$1")
out=$(realpath -m "${2:-$root/runs/europarl_en_de}")
pairs=${3:-230000}
config=$(realpath -m "${4:-$root/examples/europarl_en_de/config.yaml}")
cd "$root"
$tied scripts/prepare --source-lang en --target-lang de --trainpref "$raw/train" --validpref "$raw/dev" \
  --testpref "$raw/test" --out "$out" --pairs "$pairs"
$tied python scripts/run_experiment.py "$config" --prepared "$out" --out "$out/experiment"
$tied lv-report "$out/experiment" --markdown "$out/experiment/tables.md"
