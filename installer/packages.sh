# The one list of what Longhand needs from the system, and the functions that install and build.
# Sourced by run.sh, tests/run.sh and .ci/run; POSIX sh.
# shellcheck shell=sh disable=SC2034

# To build and run the window and the terminal program (names of Debian 12 and Ubuntu 24.04).
longhand_packages="
  g++ cmake ninja-build pkg-config ccache mold
  qt6-base-dev qt6-pdf-dev libqt6sql6-sqlite libgl-dev libegl1
  libsentencepiece-dev libxxhash-dev nlohmann-json3-dev libcli11-dev libmd4c-dev libuchardet-dev
  libpcre2-dev libutf8proc-dev
  fonts-noto-core fonts-noto-mono fonts-noto-cjk fonts-noto-color-emoji"

# What the tests need besides.
longhand_test_packages="python3"

say() { printf 'longhand: %s\n' "$*"; }
fail() { printf 'longhand: %s\n' "$*" >&2; exit 1; }

# True on a system whose package names the list above knows.
knows_this_system() {
  [ -r /etc/os-release ] && command -v apt-get >/dev/null 2>&1 || return 1
  # shellcheck source=/dev/null
  id=$(. /etc/os-release && printf '%s' "${ID:-}")
  # shellcheck source=/dev/null
  version=$(. /etc/os-release && printf '%s' "${VERSION_ID:-}")
  case "$id" in
    debian) [ -z "$version" ] || [ "${version%%.*}" -ge 12 ] ;;
    ubuntu) [ "${version%%.*}" -ge 24 ] ;;
    *) return 1 ;;
  esac
}

# Those of its arguments that are not installed.
missing_packages() {
  for package in "$@"; do
    case "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" in
      "install ok installed") ;;
      *) printf '%s ' "$package" ;;
    esac
  done
}

# Installs the missing ones of its arguments with apt, as root or through sudo.
install_packages() {
  if [ "${LONGHAND_NO_INSTALL:-}" = 1 ]; then
    return 0
  fi
  if ! knows_this_system; then
    say "this system is neither Debian 12 nor Ubuntu 24.04 nor newer, so nothing is installed for you."
    say "Longhand needs these packages (Debian's names; Qt must be 6.4 or newer):"
    printf '%s\n' "$*" | fold -s -w 90 | sed 's/^/  /'
    fail "install their counterparts, then run this again with LONGHAND_NO_INSTALL=1 before it."
  fi
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  say "these packages are missing and will now be installed with apt:"
  printf '%s\n' "$missing" | fold -s -w 90 | sed 's/^/  /'
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
    say "sudo may ask for your password."
  else
    fail "you are not root and there is no sudo. As root, run: apt-get install $missing"
  fi
  $as_root apt-get update || fail "apt-get update failed, see above. Is the network up?"
  # shellcheck disable=SC2086  # a list of words
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing ||
    fail "apt-get could not install the packages, see above."
}

# build_preset PRESET [option of cmake --build...]: configures where needed, then builds. A second
# call with nothing changed builds nothing.
build_preset() {
  preset=$1
  shift
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "configuring ($preset)"
    mkdir -p "build/$preset"
    log="build/$preset/configure.log"
    cmake --preset "$preset" >"$log" 2>&1 || {
      cat "$log" >&2
      fail "configuring failed, see above."
    }
  fi
  cmake --build --preset "$preset" "$@" || fail "the build failed, see above."
}

# Whether the driver of an NVIDIA card is at work here.
has_nvidia_card() { nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

# build_cuda_plugin PRESET: builds what lets Longhand compute on this machine's NVIDIA card, or says
# what is missing for that. Longhand runs without it, too, so this never fails.
build_cuda_plugin() {
  # Again: a toolkit may have been installed since the first time.
  log="build/$1/configure.log"
  cmake --preset "$1" -U LONGHAND_NVCC >"$log" 2>&1 || cat "$log" >&2
  if ! grep -q '^LONGHAND_CUDA_ARCHITECTURES:' "build/$1/CMakeCache.txt"; then
    reason=$(sed -n 's/^-- No CUDA plug-in: //p' "$log")
    say "this machine has an NVIDIA card, but Longhand cannot be built for it: $reason"
    say "it computes on the processor until you install the CUDA toolkit 12 or 13 from"
    say "https://developer.nvidia.com/cuda-downloads and run this again."
    return 0
  fi
  say "building for this machine's NVIDIA card (some minutes the first time)"
  cmake --build --preset "$1" --target longhand_cuda ||
    say "that failed, see above: Longhand computes on the processor."
}
