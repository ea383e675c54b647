#!/usr/bin/env python3
"""Holds the includes of src/lockstep against cmake/layers.txt, and every source against the libtorch line.

usage: check_layers.py [REPOSITORY]

Rules:
  1. Every folder of src/lockstep that holds sources is listed, after all folders it may include.
  2. A file includes lockstep headers of its own folder, of base/ and of the folders its line names; recipes/ and apps/
     may also include the option headers (options.h, *_options.h) of every folder.
  3. ATen, c10 and torch headers are for folders below the libtorch line (marked *). Option headers never use them: they
     include only option headers and headers of base/ and options/.
  4. Heavy third-party headers stay out of headers above the line.
  5. The umbrella headers of torch are used nowhere, tests and benchmarks included.
  6. Quoted includes begin with lockstep/ (text/ may also include the header of the Rust bridge).
Prints one line per violation; exit status 1 if there is any.
"""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE_SUFFIXES = {".h", ".hpp", ".cuh", ".c", ".cpp", ".cu"}
HEADER_SUFFIXES = {".h", ".hpp", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")
UMBRELLAS = re.compile(r"^(torch/(torch|nn|all|extension|library)\.h|torch/nn/.*|"
                       r"ATen/(ATen|Functions|NativeFunctions|TensorMethods)\.h)$")
HEAVY = re.compile(r"^(nlohmann/json\.hpp|yaml-cpp/.*|CLI/.*|spdlog/.*)$")
BRIDGE = "lockstep_bridge.h"
READS_ALL_OPTIONS = {"recipes", "apps"}


@dataclass
class Folder:
    below_line: bool
    uses: list


def parse_layers(text):
    """Returns folder -> Folder in the order of the file, and complaints about the file itself."""
    folders, complaints = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, colon, uses = line.partition(":")
        name = name.strip()
        if not colon:
            complaints.append(f"cmake/layers.txt:{number}: '{line}' has no colon; "
                              "write 'folder: folders it may include'")
            continue
        folder = Folder(name.endswith("*"), uses.split())
        name = name.rstrip("*")
        for used in folder.uses:
            if used not in folders:
                complaints.append(f"cmake/layers.txt:{number}: {name} uses {used}, which is not listed above it")
            elif folders[used].below_line and not folder.below_line:
                complaints.append(f"cmake/layers.txt:{number}: {name} is above the libtorch line and uses {used} "
                                  "below it")
        folders[name] = folder
    return folders, complaints


def includes_of(path):
    """(line number, quote or angle bracket, header)."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match.group(1), match.group(2)))
    return found


def is_option_header(path):
    name = Path(path).name
    return name == "options.h" or name.endswith("_options.h")


def complaint_about(path, bracket, header, folder_name, folders):
    """What is wrong with one include of a file under src/lockstep, or None. `path` is relative to src/lockstep."""
    folder = folders[folder_name]
    if header.startswith("lockstep/"):
        target = header.split("/")[1]
        if is_option_header(path) and not (is_option_header(header) or target in ("base", "options")):
            return "an option header includes only option headers and headers of base/ and options/"
        if target in {folder_name, "base", *folder.uses}:
            return None
        if folder_name in READS_ALL_OPTIONS and is_option_header(header):
            return None
        return f"{folder_name}/ may not include {target}/ (cmake/layers.txt)"
    if TORCH.match(header):
        if is_option_header(path):
            return "an option header must be free of torch"
        if not folder.below_line:
            return f"{folder_name}/ is above the libtorch line"
    elif HEAVY.match(header) and Path(path).suffix in HEADER_SUFFIXES and not folder.below_line:
        return "a heavy header belongs into a .cpp file"
    elif bracket == '"' and not (folder_name == "text" and header == BRIDGE):
        return "a quoted include begins with lockstep/"
    return None


def sources_below(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCE_SUFFIXES and p.is_file())


def check(repository):
    """All violations, one text each."""
    root = Path(repository) / "src" / "lockstep"
    folders, complaints = parse_layers((Path(repository) / "cmake" / "layers.txt").read_text(encoding="utf-8"))
    unlisted = set()
    for path in sources_below(root):
        relative = path.relative_to(root)
        folder_name = relative.parts[0]
        if folder_name not in folders:
            unlisted.add(folder_name)
            continue
        for number, bracket, header in includes_of(path):
            complaint = complaint_about(relative, bracket, header, folder_name, folders)
            if complaint:
                complaints.append(f"src/lockstep/{relative}:{number}: includes {header}: {complaint}")
    complaints += [f"src/lockstep/{name}: has sources and is not listed in cmake/layers.txt"
                   for name in sorted(unlisted)]
    for top in ("src", "tests", "bench", "examples"):
        for path in sources_below(Path(repository) / top):
            complaints += [f"{path.relative_to(repository)}:{number}: includes {header}: an umbrella header of torch "
                           "takes 10 s to compile; include ATen/core/Tensor.h and ATen/ops/<name>.h"
                           for number, _, header in includes_of(path) if UMBRELLAS.match(header)]
    return complaints


def main():
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    complaints = check(repository)
    num_files = len(sources_below(repository / "src" / "lockstep"))
    if num_files == 0:
        complaints.append(f"{repository}/src/lockstep: no sources found, so nothing was checked")
    print("\n".join(complaints) if complaints else f"{num_files} files keep to cmake/layers.txt")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
