#!/bin/sh
# What the assembler says of the CUDA kernels: registers, shared memory, spills, and how many blocks
# a multiprocessor holds of them. Runs nvcc, needs no device:
#   tests/bench/ptxas_table.sh [ARCHITECTURES [FILE.cu...]]
# prints a line a kernel and architecture ("86 90"; all files of kernels/cuda). The exit status is 1
# when a kernel spills. A + behind the shared memory says that the launch adds more, which ptxas
# cannot know: the blocks are then an upper bound. Threads are those of __launch_bounds__.
set -eu
cd "$(dirname "$0")/../.."
architectures=${1:-86 90}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- kernels/cuda/*.cu kernels/cuda/*/*.cu
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [ ! -x "$nvcc" ]; then
  echo "There is no nvcc here (looked in PATH, CUDA_HOME and /usr/local/cuda): install the CUDA" \
    "toolkit 12 or 13 to see what its assembler says of the kernels." >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for file in "$@"; do
  for architecture in $architectures; do
    # One pass of the compiler: its PTX knows the threads of a block and who uses dynamic memory.
    "$nvcc" -std=c++20 "-arch=compute_$architecture" -I. --expt-relaxed-constexpr \
      -Werror all-warnings -ptx "$file" -o "$work/kernel.ptx"
    "$nvcc" "-arch=sm_$architecture" -Xptxas -v -cubin "$work/kernel.ptx" -o "$work/kernel.cubin" \
      2>"$work/said" || { cat "$work/said" >&2; exit 1; }
    echo "file $(basename "$file") $architecture"
    awk '/^\.visible \.entry|^\.entry/ { sub(/\(.*/, "", $NF); name = $NF; print "kernel", name }
         /^\.maxntid/ { gsub(/[^0-9 ]/, " "); print "threads", $1 }
         /\.extern \.shared/ { print "dynamic", $NF }
         name != "" { while (match($0, /_Z[A-Za-z0-9_]*Bytes/)) {
             print "uses", substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH) } }' \
      "$work/kernel.ptx"
    sed -n "s/.*Compiling entry function '\([^']*\)'.*/compiled \1/p
            s/.*, \([0-9]*\) bytes spill stores, \([0-9]*\) bytes spill loads.*/spills \1 \2/p
            s/.*Used \([0-9]*\) registers\(.*\)/used \1\2/p" "$work/said"
  done
done | awk '
  function up(x, unit) { return int((x + unit - 1) / unit) * unit }
  function least(a, b) { return a < b ? a : b }
  BEGIN {
    # Warps, blocks and KiB of shared memory of a multiprocessor (CUDA C++ Programming Guide).
    split("75 80 86 87 89 90 100 103 110 120 121", names)
    split("32 64 48 48 48 64 64 64 48 48 48", warps)
    split("16 32 16 16 24 32 32 32 24 24 24", blocks)
    split("64 164 100 164 100 228 228 228 228 100 100", kib)
    for (i in names) at[names[i]] = i
  }
  $1 == "file" { file = $2; architecture = $3; delete threads; delete isDynamic }
  $1 == "kernel" { kernel = $2 }
  $1 == "threads" { threads[kernel] = $2 }
  $1 == "uses" { isDynamic[kernel] = 1 }
  $1 == "compiled" { kernel = $2 }
  $1 == "spills" { stores = $2; loads = $3 }
  $1 == "used" {
    registers = $2
    shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
    n = threads[kernel]
    i = at[architecture]
    if (n == "" || i == "") {
      most = "?"
    } else {
      nWarps = up(n, 32) / 32
      most = least(blocks[i], int(warps[i] / nWarps))
      most = least(most, int(65536 / (up(registers * 32, 256) * nWarps)))
      reserved = architecture >= 80 ? 1024 : 0
      if (shared > 0) most = least(most, int(kib[i] * 1024 / (shared + reserved)))
    }
    printf "%s %s %s %d %s %d%s %d %d %s\n", file, kernel, architecture, registers,
           n == "" ? "?" : n, shared, kernel in isDynamic ? "+" : "", stores, loads, most
  }' | c++filt | sed 's/longhand::kernels::cuda:://g; s/(anonymous namespace):://g' | awk '
  BEGIN {
    format = "%-22s %-44s %4s %9s %7s %8s %7s %7s\n"
    printf format, "file", "kernel", "sm", "registers", "threads", "shared", "spilled", "blocks"
  }
  {
    n = NF
    kernel = $2
    for (i = 3; i <= n - 7; ++i) kernel = kernel " " $i
    sub(/^void /, "", kernel)
    if (kernel ~ /</) sub(/>\(.*/, ">", kernel); else sub(/\(.*/, "", kernel)
    gsub(/\(longhand::kernels::DataType\)/, "type ", kernel)
    spilled = $(n - 2) + $(n - 1)
    printf format, $1, kernel, $(n - 6), $(n - 5), $(n - 4), $(n - 3), spilled, $n
    if (spilled > 0) ++nSpilling
  }
  END {
    if (nSpilling > 0) {
      print nSpilling " kernels spill."
      exit 1
    }
  }'
