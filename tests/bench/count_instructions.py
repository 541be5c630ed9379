#!/usr/bin/env python3
"""Counts the instructions of the loops of a CUDA kernel, from its machine code:

    tests/bench/count_instructions.py SOURCE ARCHITECTURE [KERNEL]
    tests/bench/count_instructions.py kernels/cuda/attention/attention_decode.cu 90 decodeKernelILi4ELi1E

compiles SOURCE with nvcc for sm_ARCHITECTURE and prints, for each kernel whose mangled name holds
KERNEL, each loop: its place, the instructions of one turn, and the kinds that tell which loop of
the source it is. Needs nvcc only, not cuobjdump: since Volta every instruction has 16 bytes, its
low 12 bits are the opcode, and a branch holds the distance to its target. Loops that overlap others
without lying inside of them are the detours of shuffles in diverged warps; they are left out.
kernels/cuda/kernel_costs.h says how its figures come from these.
"""
import collections
import pathlib
import struct
import subprocess
import sys
import tempfile

BRANCH = 0x947
KINDS = {
    0x23C: "HMMA",
    0x980: "LD",
    0x981: "LDG",
    0x381: "LDG",
    0x984: "LDS",
    0x388: "STS",
    0x308: "MUFU",
    0x98F: "prefetch",
}


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def branch_target(index, word, architecture):
    if architecture >= 90:
        distance = 4 * signed((word >> 16 & 0xFF) | (word >> 34 & (1 << 48) - 1) << 8, 56)
    else:
        distance = signed(word >> 32 & (1 << 50) - 1, 50)
    return index + 1 + distance // 16


def kernels(image):
    """(name, [128-bit instruction]) of each kernel of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    for name_at, _, _, _, offset, length in sections:
        start = sections[names][4] + name_at
        name = image[start : image.index(b"\0", start)].decode()
        if name.startswith(".text."):
            code = image[offset : offset + length]
            yield name[6:], [
                int.from_bytes(code[i : i + 16], "little") for i in range(0, length, 16)
            ]


def loops(code, architecture):
    found = set()
    for index, word in enumerate(code):
        if word & 0xFFF == BRANCH:
            target = branch_target(index, word, architecture)
            if 0 <= target < index:
                found.add((target, index))
    crosses = lambda a, b: a[0] < b[0] <= a[1] < b[1]
    return sorted(
        (a for a in found if not any(crosses(b, a) and a[1] - a[0] > 2000 for b in found)),
        key=lambda loop: (loop[0], -loop[1]),
    )


def main():
    source, architecture = sys.argv[1], int(sys.argv[2])
    wanted = sys.argv[3] if len(sys.argv) > 3 else ""
    with tempfile.TemporaryDirectory() as folder:
        cubin = pathlib.Path(folder) / "kernel.cubin"
        command = ["nvcc", "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-I."]
        command += ["--expt-relaxed-constexpr", "-cubin", source, "-o", str(cubin)]
        subprocess.run(command, check=True)
        image = cubin.read_bytes()
    for name, code in kernels(image):
        if wanted not in name:
            continue
        print(f"{name}: {len(code)} instructions")
        for first, last in loops(code, architecture):
            counts = collections.Counter(
                KINDS[word & 0xFFF] for word in code[first : last + 1] if word & 0xFFF in KINDS
            )
            kinds = " ".join(f"{kind} {counts[kind]}" for kind in sorted(counts))
            print(f"  {first:6}..{last:<6} {last - first + 1:6} a turn  {kinds}")


main()
