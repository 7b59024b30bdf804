#!/usr/bin/env bash
# Installs what the system tests need beyond cargo, at pinned versions, into tests/peers/node_modules.
#   tests/peers/install.sh
# A test whose peer is missing says so and is skipped; with CI=true it fails instead.
set -euo pipefail
cd "$(dirname "$0")"
node --version >/dev/null 2>&1 || { echo "peers: node 20.15 or newer is needed" >&2; exit 1; }
npm ci --silent --no-fund --no-audit
echo "peers: aimock $(node -p "require('@copilotkit/aimock/package.json').version" 2>/dev/null || echo installed)"
