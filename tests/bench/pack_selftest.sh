#!/bin/sh
# Packs longhand-selftest and the CUDA plug-in, to be carried to a machine with a graphics card:
#   tests/bench/pack_selftest.sh [FOLDER [ARCHITECTURES]]
# builds for the architectures ("86;90"), fills FOLDER (build/longhand-selftest) and FOLDER.tar.gz,
# checks that both need nothing but glibc and stay under 64 MiB, and prints the command to run there.
set -eu
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-"$source_dir/build/longhand-selftest"}
architectures=${2:-86;90}
build="$source_dir/build/selftest"
limit_bytes=$((64 * 1024 * 1024))

cmake -S "$source_dir" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DLONGHAND_APP=OFF -DBUILD_TESTING=OFF -DLONGHAND_CUDA=ON \
  "-DLONGHAND_CUDA_ARCHITECTURES=$architectures" \
  "-DCMAKE_MODULE_LINKER_FLAGS=-static-libstdc++ -static-libgcc" >&2
cmake --build "$build" --target longhand-selftest longhand_cuda >&2

rm -rf "$folder" "$folder.tar.gz"
mkdir -p "$folder"
for file in longhand-selftest liblonghand_cuda.so; do
  strip -o "$folder/$file" "$build/bin/$file"
  libraries=$(objdump -p "$folder/$file" | awk '$1 == "NEEDED" {print $2}')
  for library in $libraries; do
    case $library in
      libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | ld-linux*) ;;
      *)
        echo "pack_selftest.sh: $file needs $library, which is no part of glibc" >&2
        exit 1
        ;;
    esac
  done
done
glibc=$(objdump -T "$folder"/* | grep -o 'GLIBC_2\.[0-9]*' | sort -V | tail -1 | tr _ ' ')
command='./longhand-selftest --backend cuda --json selftest.json'
cat >"$folder/README.txt" <<END
Longhand's self-test for NVIDIA cards (CUDA architectures $architectures).
Needs Linux on x86-64 with $glibc or newer and the NVIDIA driver; cuBLAS is used where it is
installed. Nothing is installed and nothing is written but the file of --json. Run, for six minutes:

    $command

Exit status 0: every kernel is right. The table compares the speed with the targets, and each row with
what was predicted for it from the copy and matrix rate of the same run. Without a card,

    ./longhand-selftest --predict h200

says what one should give: rtx-3060, rtx-3090, rtx-4090 or h200.
END
tar -C "$(dirname "$folder")" -czf "$folder.tar.gz" "$(basename "$folder")"
bytes=$(du -sb "$folder" | cut -f1)
if [ "$bytes" -gt "$limit_bytes" ]; then
  echo "pack_selftest.sh: $folder has $bytes bytes, more than $limit_bytes" >&2
  exit 1
fi
ls -l "$folder" "$folder.tar.gz"
echo "Needs $glibc. On the machine with the card, in this folder:"
echo "    $command"
