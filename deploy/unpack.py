"""Extracts the files of libtorch that Kith links or loads from Python wheels. Called by setup.sh.

    unpack.py base OUT WHEEL...      headers and CPU libraries into OUT/include and OUT/lib
    unpack.py cuda OUT WHEEL...      the libraries loaded at run time with an NVIDIA driver, into OUT

Every file is checked against the wheel's own list of checksums. A file `stamp` is written last, one line per library
(size, SHA-256, path): a folder without it is incomplete.
"""

import base64
import csv
import hashlib
import pathlib
import re
import sys
import zipfile

BASE = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}
CUDA = {"libtorch_cuda.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libc10_cuda.so", "libcaffe2_nvrtc.so"}


def main(what, *arguments):
    out = pathlib.Path(arguments[0])
    place = {"base": base_place, "cuda": cuda_place}[what]
    stamp = [line for wheel in arguments[1:] for line in unpack(wheel, place, out)]
    found = {pathlib.PurePath(line.split(" ", 2)[2]).name for line in stamp}
    absent = {"base": BASE, "cuda": CUDA}[what] - found
    if absent:
        sys.exit(f"these wheels have no {', '.join(sorted(absent))}")
    if what == "base":
        # The wheel's own libtorch.so only loads the CUDA libraries; linking it would require them everywhere.
        (out / "lib/libtorch.so").symlink_to("libtorch_cpu.so")
        (out / "lib/libgomp.so").symlink_to("libgomp.so.1")
        (out / "build-version").write_text(version(arguments[1:]) + "\n")
    else:
        for name in ("libcudart.so.13", "libcupti.so.13"):
            (out / name).symlink_to(f"../lib/{name}")
        link_plain_names(out)
    (out / "stamp").write_text("\n".join(sorted(stamp)) + "\n")


def base_place(member):
    """Path of a wheel's member in the folder; None: it is not extracted."""
    path = pathlib.PurePosixPath(member)
    if path.name in BASE and path.parent.name == "lib":
        return f"lib/{path.name}"
    return member.removeprefix("torch/") if member.startswith("torch/include/") else None


def cuda_place(member):
    path = pathlib.PurePosixPath(member)
    is_library = path.parent.name == "lib" and ".so" in path.name and path.name not in BASE
    return path.name if is_library and (path.parts[0] == "nvidia" or path.name in CUDA) else None


def unpack(wheel, place, out):
    """Copies the members that have a path, checks each, and yields a stamp line for each library."""
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = csv.reader(archive.read(record).decode().splitlines())
        checksums = {name: checksum for name, checksum, _ in rows}
        for member in archive.infolist():
            goal = None if member.is_dir() else place(member.filename)
            if goal is None:
                continue
            path = out / goal
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = copy(archive, member, path)
            encoded = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
            if checksums.get(member.filename) != f"sha256={encoded}":
                sys.exit(f"{wheel}: {member.filename} does not have the checksum the wheel lists")
            if ".so" in path.name:
                yield f"{member.file_size} {digest.hexdigest()} {goal}"


def copy(archive, member, path):
    digest = hashlib.sha256()
    with archive.open(member) as source, open(path, "xb") as target:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            target.write(chunk)
    return digest


def link_plain_names(out):
    """Links libnccl.so -> libnccl.so.2 and so on: some programs and linkers use the name without a number."""
    for path in sorted(out.iterdir()):
        plain = out / re.sub(r"\.so\.[0-9.]+$", ".so", path.name)
        if not plain.exists():
            plain.symlink_to(path.name)


def version(wheels):
    torch = next(wheel for wheel in map(pathlib.Path, wheels) if wheel.name.startswith("torch-"))
    return torch.name.split("-")[1]


main(*sys.argv[1:])
