#!/usr/bin/env bash
# The paper's English to German experiment, with 500,000 words on both sides.
#   examples/wmt14_en_de/run.sh RAW [OUT] [CONFIG]
# RAW holds train.en, train.de (WMT'14: Europarl v7, Common Crawl, News Commentary),
# dev.en, dev.de (news-test 2012 and 2013 together) and test.en, test.de (news-test 2014), untokenised.
set -euo pipefail
source "$(dirname "$0")/../start.sh"
if [ $# -lt 1 ]; then
  echo "usage: $0 RAW [OUT] [CONFIG]" >&2
  exit 2
fi
raw=$(realpath -m "$1")
out=$(realpath -m "${2:-$root/runs/wmt14_en_de}")
config=$(realpath -m "${3:-$root/examples/wmt14_en_de/config.yaml}")
cd "$root"
$tied scripts/prepare --source-lang en --target-lang de --trainpref "$raw/train" --validpref "$raw/dev" \
  --testpref "$raw/test" --out "$out" --words 500000 --max-length 50
$tied python scripts/run_experiment.py "$config" --prepared "$out" --out "$out/experiment"
$tied lv-report "$out/experiment" --markdown "$out/experiment/tables.md"
