#!/usr/bin/env bash
# Installs what the system tests need beyond cargo, at pinned versions, into tests/peers/node_modules
# and tests/peers/venv.
#   tests/peers/install.sh
# A test whose peer is missing says so and is skipped; with CI=true it fails instead.
set -euo pipefail
cd "$(dirname "$0")"
node --version >/dev/null 2>&1 || { echo "peers: node 20.15 or newer is needed" >&2; exit 1; }
npm ci --silent --no-fund --no-audit
echo "peers: aimock $(node -p "require('@copilotkit/aimock/package.json').version" 2>/dev/null || echo installed)"
# PyPI's llmock: the npm package of the server above has an executable of the same name, which is
# why each is called by its own path.
python3 -m venv --help >/dev/null 2>&1 || { echo "peers: python 3 with venv is needed" >&2; exit 1; }
[ -x venv/bin/pip ] || python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
echo "peers: llmock $(venv/bin/python -c 'from importlib.metadata import version; print(version("llmock"))')"
# Only its data is wanted: the lists of functions, in a folder of their own.
venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile --upgrade \
  --target bfcl bfcl-eval==2026.3.23
echo "peers: bfcl-eval 2026.3.23"
