#!/usr/bin/env bash
# The whole story on real text that every Debian user has: package descriptions in English and German (or another
# language), from apt to the report, in under 30 minutes on two cores.
#   examples/debian_descriptions/run.sh [LANGUAGE] [OUT] [CONFIG]
set -euo pipefail
source "$(dirname "$0")/../start.sh"
language=${1:-de}
out=$(realpath -m "${2:-$root/runs/debian_en_$language}")
config=$(realpath -m "${3:-$root/examples/debian_descriptions/config.yaml}")
cd "$root"
if [ ! -f "$out/raw/test.$language" ]; then
  $tied python examples/debian_descriptions/make_corpus.py --language "$language" --out "$out/raw"
fi
$tied scripts/prepare --source-lang en --target-lang "$language" --trainpref "$out/raw/train" --validpref "$out/raw/dev" \
  --testpref "$out/raw/test" --out "$out/prepared"
$tied python scripts/run_experiment.py "$config" --prepared "$out/prepared" --out "$out/experiment"
$tied lv-report "$out/experiment" --markdown "$out/experiment/tables.md"
