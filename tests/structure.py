#!/usr/bin/env python3
"""Counts the structure of the tree: folders, arrows (includes) between them, circles, sizes.

Usage: structure.py [SOURCE_DIR]           prints the counts (a markdown table)
       structure.py --check [SOURCE_DIR]   exits 1 where two folders, or files of two folders, include
                                           each other in a circle, and prints it

A room is a header with its source (x.h, x.cpp, x.cu), an arrow an include between two rooms of
different folders, and back is an arrow between folders that reach each other both ways. Classes and
functions are counted only where Universal Ctags is installed.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

LAYERS = ("kernels", "engine", "app", "ui")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def sourcesOf(root):
    return sorted(path.relative_to(root) for layer in LAYERS for path in (root / layer).rglob("*")
                  if path.suffix in SUFFIXES)


def roomOf(path):
    return path.parent.as_posix() + "/" + path.name.split(".")[0]


def folderOf(room):
    return room.rsplit("/", 1)[0]


def includesOf(root, sources):
    """{room: rooms that it includes}"""
    known = {path.as_posix() for path in sources}
    arrows = {roomOf(path): set() for path in sources}
    for path in sources:
        for name in INCLUDE.findall((root / path).read_text(encoding="utf-8")):
            if name in known and roomOf(pathlib.PurePath(name)) != roomOf(path):
                arrows[roomOf(path)].add(roomOf(pathlib.PurePath(name)))
    return arrows


def circlesOf(arrows):
    """Strongly connected sets of more than one node (Tarjan 1972, without recursion)."""
    index, low, stack, onStack, circles = {}, {}, [], set(), []
    for start in sorted(arrows):
        if start in index:
            continue
        work = [(start, iter(sorted(arrows[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        onStack.add(start)
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = []
                    while not circle or circle[-1] != node:
                        circle.append(stack.pop())
                        onStack.discard(circle[-1])
                    if len(circle) > 1:
                        circles.append(sorted(circle))
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                onStack.add(target)
                work.append((target, iter(sorted(arrows[target]))))
            elif target in onStack:
                low[node] = min(low[node], index[target])
    return circles


def tagsOf(root, sources):
    """What Universal Ctags knows of functions ('f') and members ('m'); none where it is missing."""
    if shutil.which("ctags") is None:
        return []
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C++=fm",
               "--map-CUDA=-.cu", "--map-C++=+.cu", "--map-C++=+.cuh", "--language-force=C++",
               "-f", "-", "-L", "-"]
    listed = "\n".join(path.as_posix() for path in sources)
    run = subprocess.run(command, input=listed, capture_output=True, text=True, cwd=root, check=False)
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def main(arguments):
    isCheck = arguments[:1] == ["--check"]
    places = arguments[1:] if isCheck else arguments
    root = pathlib.Path(places[0] if places else ".").resolve()
    sources = sourcesOf(root)
    arrows = includesOf(root, sources)
    circles = circlesOf(arrows)
    acrossFolders = [c for c in circles if len({folderOf(room) for room in c}) > 1]
    folders = {}
    for path in sources:
        folders.setdefault(path.parent.as_posix(), []).append(path)
    largest = max(folders, key=lambda folder: len(folders[folder]))
    between = {folder: set() for folder in folders}
    nArrows = 0
    for room, targets in arrows.items():
        for target in targets:
            if folderOf(room) != folderOf(target):
                between[folderOf(room)].add(folderOf(target))
                nArrows += 1
    bound = {folder: i for i, c in enumerate(circlesOf(between)) for folder in c}
    back = [(a, b) for a in between for b in between[a]
            if a in bound and bound.get(b) == bound[a]]
    if isCheck:
        for circle in acrossFolders:
            print("these include each other in a circle:", ", ".join(circle))
        for a, b in sorted(back):
            print("these folders lie on a circle:", a, "->", b)
        return 1 if acrossFolders or back else 0

    rows = [("files", len(sources)), ("folders", len(folders)),
            ("files in the largest folder", f"{len(folders[largest])} ({largest})"),
            ("includes between rooms of different folders", nArrows),
            ("arrows between folders", sum(len(targets) for targets in between.values())),
            ("arrows between folders that lie on a circle of folders", len(back)),
            ("circles of files", len(circles)),
            ("files in the largest circle", max((len(c) for c in circles), default=0)),
            ("circles of files across folders", len(acrossFolders))]
    tags = tagsOf(root, sources)
    if tags:
        fields = {}
        for tag in tags:
            if tag["kind"] == "member":
                key = (tag["path"], tag["scope"])
                fields[key] = fields.get(key, 0) + 1
        most = max(fields, key=lambda key: fields[key])
        rows.append(("fields of the largest class", f"{fields[most]} ({most[1]})"))
        long = [tag for tag in tags
                if tag["kind"] == "function" and tag.get("end", 0) - tag["line"] + 1 > 80]
        names = ", ".join(sorted({tag["name"] for tag in long}))
        rows.append(("functions over 80 lines", f"{len(long)} ({names})" if long else 0))
    named = re.compile(r"residual_?length", re.IGNORECASE)
    places = [path for path in sources if path.parts[0] != "kernels"
              for line in (root / path).read_text(encoding="utf-8").splitlines() if named.search(line)]
    rows.append(("lines of ui, app and engine that name residual_length",
                 f"{len(places)} in {len(set(places))} files"))
    print("| counted | |\n| --- | --- |")
    for name, value in rows:
        print(f"| {name} | {value} |")
    for circle in circles:
        print("\ncircle:", ", ".join(circle))
    for a, b in sorted(back):
        print("back:", a, "->", b)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
