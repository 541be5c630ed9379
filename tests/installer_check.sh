#!/bin/sh
# What the installer makes of graphics cards and CUDA toolkits, with programs that play their part.
# Usage: sh tests/installer_check.sh SOURCE_FOLDER
set -eu
source_folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=installer/packages.sh
. "$source_folder/installer/packages.sh"
n_failures=0

# expect WHAT EXPECTED ACTUAL
expect() {
  [ "$2" = "$3" ] && return 0
  n_failures=$((n_failures + 1))
  printf '%s:\n  expected: %s\n  actual:   %s\n' "$1" "$2" "$3" >&2
}

# play PROGRAM: makes one of that name in $work/bin from the script on standard input.
play() {
  mkdir -p "$work/bin"
  { echo '#!/bin/sh'; cat; } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# ask_cmake CALL: what a function of cuda_toolkit.cmake leaves in `answer`.
ask_cmake() {
  printf 'set(CMAKE_BINARY_DIR "%s")\ninclude("%s/cmake/cuda_toolkit.cmake")\n%s\nmessage("${answer}")\n' \
    "$work" "$source_folder" "$1" >"$work/ask.cmake"
  env PATH="$work/bin:$PATH" cmake -P "$work/ask.cmake" 2>&1
}

check_toolkits() {
  expect "no toolkit" "there is no nvcc." "$(ask_cmake 'longhand_check_cuda("" answer)')"
  play nvcc <<'END'
echo "Cuda compilation tools, release 11.8, V11.8.89"
END
  expect "an old toolkit" "$work/bin/nvcc is of CUDA 11.8, and Longhand needs 12 or newer." \
    "$(ask_cmake "longhand_check_cuda($work/bin/nvcc answer)")"
  play nvcc <<'END'
[ "$1" = --version ] && { echo "Cuda compilation tools, release 12.0, V12.0.1"; exit; }
echo "host_config.h(143): error: unsupported GNU version!" >&2
exit 1
END
  expect "a toolkit that does not know the compiler" \
    "$work/bin/nvcc cannot compile: host_config.h(143): error: unsupported GNU version!" \
    "$(ask_cmake "longhand_check_cuda($work/bin/nvcc answer)")"
  play nvcc <<'END'
echo "Cuda compilation tools, release 13.0, V13.0.88"
END
  expect "a toolkit that will do" "" "$(ask_cmake "longhand_check_cuda($work/bin/nvcc answer)")"
}

# cards LIST OF CAPABILITIES: plays a driver that has these.
cards() {
  play nvidia-smi <<END
case "\$1" in
  -L) for c in $*; do echo "GPU 0: Card (UUID: GPU-0)"; done ;;
  *) for c in $*; do echo "\$c"; done ;;
esac
END
}

check_cards() {
  smi="set(LONGHAND_NVIDIA_SMI $work/bin/nvidia-smi)"
  for each in "8.9=89" "12.0=120" "9.0 7.5 9.0=90;75" "6.1 8.6=86" "6.1=86" "=86"; do
    # shellcheck disable=SC2086  # a list of words
    cards ${each%%=*}
    expect "architectures of cards ${each%%=*}" "${each##*=}" \
      "$(ask_cmake "$smi
longhand_card_architectures(answer)")"
  done
  cards 8.9
  (PATH="$work/bin:$PATH" has_nvidia_card) || expect "a card" there missing
  play nvidia-smi <<'END'
echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
exit 9
END
  (PATH="$work/bin:$PATH" has_nvidia_card) && expect "a card without driver" missing there
  return 0
}

# A cmake that finds a toolkit, or says why there is none.
check_plugin_build() {
  mkdir -p "$work/tree/build/release"
  play cmake <<'END'
case "$*" in
  --preset*) echo "-- No CUDA plug-in: there is no nvcc."; : >build/release/CMakeCache.txt ;;
  *) echo "built" ;;
esac
END
  text=$(cd "$work/tree" && PATH="$work/bin:$PATH" && build_cuda_plugin release)
  case "$text" in
    *"cannot be built for it: there is no nvcc."*"cuda-downloads"*) ;;
    *) expect "a card without toolkit" "a sentence with what to do" "$text" ;;
  esac
  play cmake <<'END'
case "$*" in
  --preset*) echo "LONGHAND_CUDA_ARCHITECTURES:STRING=89" >build/release/CMakeCache.txt ;;
  *) echo "built: $*"; exit 1 ;;
esac
END
  text=$(cd "$work/tree" && PATH="$work/bin:$PATH" && build_cuda_plugin release) ||
    expect "a build that fails" "goes on" "ends"
  case "$text" in
    *"built: --build --preset release --target longhand_cuda"*"computes on the processor."*) ;;
    *) expect "a card with toolkit" "the plug-in is built" "$text" ;;
  esac
}

check_toolkits
check_cards
rm -f "$work/bin/cmake"
check_plugin_build
[ "$n_failures" = 0 ] || exit 1
echo "what the installer says of cards and toolkits is right"
