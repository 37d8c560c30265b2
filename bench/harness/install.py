"""Installing: packages by name from npm, PyPI and crates.io, in the versions that the files in
bench/peers pin, into a cache outside the repository; and our own programs from this repository."""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

from .place import CACHE, PEERS, ROOT, TARGET, Missing, find, output, say


@functools.cache
def install(name):
    """The folder with a system's packages and our program for it."""
    source = PEERS / name
    pins = [source / "package-lock.json", source / "requirements.txt"]
    pins = b"".join(path.read_bytes() for path in pins if path.exists())
    folder = CACHE / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for file in [*source.iterdir(), *PEERS.glob("*.mjs")]:
        shutil.copy(file, folder)
    done = folder / "installed"
    if not done.exists():
        say("installing", name)
        if (folder / "package.json").exists():
            npm = [find("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(npm, cwd=folder, check=True, stdout=sys.stderr)
        if (folder / "requirements.txt").exists():
            subprocess.run([sys.executable, "-m", "venv", "venv"], cwd=folder, check=True)
            pip = ["venv/bin/pip", "install", "--quiet", "-r", "requirements.txt"]
            subprocess.run(pip, cwd=folder, check=True)
        done.touch()
    return folder


def node():
    """The pinned Node.js: one for all peers, and new enough for each. Where its package has no
    program for this machine, the installed one."""
    for program in install("node").glob("node_modules/node-*/bin/node"):
        return program
    return find("node")


def npm_versions(folder):
    names = json.loads((folder / "package.json").read_text())["dependencies"]
    versions = ", ".join(f"{name} {version}" for name, version in names.items())
    return f"{versions}; Node.js {output(node(), '--version').strip()}"


def pip_version(folder, package):
    pinned = (folder / "requirements.txt").read_text()
    version = re.search(rf"^{package}==(\S+)", pinned, re.MULTILINE)[1]
    return f"{package} {version}; {output(folder / 'venv/bin/python', '--version').strip()}"


@functools.cache
def build_peers():
    """The folder with the programs of the peers that are written in Rust."""
    target = CACHE / "rust"
    build = [find("cargo"), "build", "--quiet", "--release", "--locked"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    if not (target / "release" / "awa").exists():
        say("building the peers that are written in Rust: this takes minutes, once")
    subprocess.run(build, cwd=PEERS / "rust", env=environment, check=True)
    return target / "release"


def rust_peer(name):
    return build_peers() / name


def crate_version(name):
    manifest = (PEERS / "rust" / "Cargo.toml").read_text()
    version = re.search(rf'^{name} = "=([^"]+)"', manifest, re.MULTILINE)[1]
    return f"{name} {version}; {output('cargo', '--version').strip()}"


@functools.cache
def build_ours():
    say("building ours")
    build = [find("cargo"), "build", "--quiet", "--release", "-p", "windlass-bench"]
    subprocess.run([*build, "-p", "windlass-server"], cwd=ROOT, check=True)
    return TARGET / "release"


def ours(name):
    """A program of this repository, built for release."""
    program = build_ours() / name
    if not program.exists():
        raise Missing(f"{name} was not built")
    return program


def our_version():
    try:
        return "windlass " + output("git", "-C", ROOT, "describe", "--always", "--dirty").strip()
    except (OSError, subprocess.CalledProcessError):
        return "windlass"
