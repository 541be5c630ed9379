#!/bin/sh
# Installs what is missing, builds everything and runs all quick tests.
# Usage: sh tests/run.sh [options of ctest]
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=installer/packages.sh
. installer/packages.sh

# shellcheck disable=SC2086  # a list of words
install_packages $longhand_packages $longhand_test_packages
build_preset dev
exec ctest --preset dev "$@"
