#!/bin/sh
# Installs what is missing, builds Longhand, and starts it with the bundled model and a sample
# document. Usage: sh installer/run.sh [options of longhand, for example --model DIR]
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=installer/packages.sh
. installer/packages.sh

# shellcheck disable=SC2086  # a list of words
install_packages $longhand_packages
build_preset release --target longhand longhand-cli
if has_nvidia_card; then build_cuda_plugin release; fi

if [ "$#" -eq 0 ]; then
  set -- --document resources/longhand-demo/sample-document.txt
fi
if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then
  exec build/release/bin/longhand "$@"
fi
say "there is no display here, so the chat starts in the terminal."
exec build/release/bin/longhand-cli chat "$@"
