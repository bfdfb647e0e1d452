# Sourced by the recipes: finds what `make install` installed, unless lv_fairseq is on the PATH already.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
command -v lv-report > /dev/null || PATH="$root/.venv/bin:$PATH"
if ! command -v lv-report > /dev/null; then
  echo "lv_fairseq is not installed: run \`make install\` in $root first" >&2
  exit 1
fi
