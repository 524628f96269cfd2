"""The Python environments of a host: which engines lie in them, read from their files.

Run by `collector.py`, in a child of its own. Python 3.6 syntax, and nothing beyond the standard library.
Nothing of an environment is imported or executed. Of its text files only lines of known forms are taken,
so that a link planted in somebody's home cannot carry another file into a bundle.
"""

import errno
import os
import re
import sys

#: Lies beside this file, wherever that was copied to.
elf = __import__("witness_elf")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from doctor.evidence.collector import Root, Where

    Say = Callable[..., None]
    Document = dict[str, object]

#: More environments than these are not described, and more places not looked at.
ENVIRONMENTS_MAX = 16
PLACES_MAX = 600
NAMES_MAX = 200
SITE_NAMES_MAX = 20000
DISTRIBUTIONS_MAX = 300
TEXT_MAX = 1 << 20

#: Names that users give to environments in their home directories, and installers to theirs.
USUAL = (
    *("venv", ".venv", "env", "vllm", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"),
    *("conda", ".conda"),
)

#: An environment without any of these has nothing to do with the GPU stack.
ENGINES = re.compile(
    r"(torch|vllm|sglang|tensorrt|tensorrt[-_.]llm|tensorrt[-_.](cu\d+|lean|dispatch).*)-\d", re.IGNORECASE
)

# The patterns below are compiled when an environment is found: on a host without any they would cost 4 ms.

#: The distributions that matter, by the beginning of their names.
RELEVANT = (
    r"(?i)(nvidia|cuda|torch|pytorch|vllm|sglang|sgl|tensorrt|triton|flash|xformers|deep|nccl|cupy|mpi4py"
    r"|openmpi|mpich|transformers|xgrammar|compressed|ninja|apex|bitsandbytes|cutlass|onnxruntime|numpy|ray"
    r"|quack|fastsafetensors)"
)
#: Distributions whose wheel tags and pins are read.
READ = (
    r"(?i)(torch|torchvision|torchaudio|vllm|sglang|sgl[-_.]kernel|tensorrt[-_.]llm"
    r"|tensorrt(?:[-_.]cu\d+)?(?:[-_.](?:libs|bindings))?|flashinfer[-_.]\w+|flash[-_.]attn|xformers|triton"
    r"|deep[-_.]gemm|torch[-_.]tensorrt)-\d"
)
#: What they ask for that is of interest here.
ASKED = (
    r"(?i)(torch|torchvision|triton|flashinfer|xformers|xgrammar|transformers|tensorrt|nvidia[-_.](nccl|cudnn)"
    r"|numpy)"
)
VERSION_LINE = (
    rb"(?m)^(__version__|cuda|hip|xpu)\s*(?::[^=\n]{0,60})?="
    rb"\s*('[^'\n]{0,100}'|None|False|True)"
)
CONFIG_LINE = (
    rb"(?m)^(home|version|version_info|include-system-site-packages|base-prefix)\s*=\s*([^\n]{1,300})"
)
TAG_LINE = rb"(?m)^Tag:\s*([\w.-]{1,200})\s*$"
REQUIRES_LINE = rb"(?m)^Requires-Dist:[ \t]*([A-Za-z0-9][^\n\x00-\x08\x0e-\x1f]{0,300})$"

#: Files whose needs tell for which CUDA, C and C++ library an engine was compiled.
LINKED = (
    *("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so", "torch/lib/libtorch_cpu.so"),
    *("vllm/_C.abi3.so", "vllm/_moe_C.abi3.so", "vllm/_C_stable_libtorch.abi3.so"),
    *("sgl_kernel/common_ops.abi3.so", "tensorrt_bindings/tensorrt.so", "tensorrt_libs/libnvinfer.so.10"),
    "tensorrt_llm/libs/libtensorrt_llm.so",
)
LINKED_STARTS = (
    *(("", "flash_attn_2_cuda"), ("vllm", "_C."), ("tensorrt_llm", "bindings."), ("tensorrt", "tensorrt.")),
)
LIBRARY_FOLDERS = (
    *("tensorrt_libs", "tensorrt", "torch/lib", "tensorrt_llm/libs", "nvidia/cu12/lib", "nvidia/cu13/lib"),
    *("nvidia/cuda_runtime/lib", "nvidia/nccl/lib", "nvidia/cublas/lib", "nvidia/cudnn/lib"),
    "nvidia/cuda_nvrtc/lib",
)
LIBRARY = (
    r"lib(cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvinfer|nvinfer_plugin|cuda|tensorrt_llm|torch_cuda|mpi"
    r"|stdc\+\+)(-[0-9a-f]{6,12})?\.so[.\d]*$"
)
FAR = r"(autofs|nfs|cifs|smb|lustre|gpfs|beegfs|ceph|glusterfs|9p|afs|fuse\.(?!fuse-overlayfs))"
CUDA_LIBRARY = r"lib(cudart|cublas|cublasLt|nvrtc)\.so\.\d+$"
PTXAS = ("triton/backends/nvidia/bin/ptxas", "triton/backends/nvidia/bin/ptxas-blackwell")
#: A libcuda of its own: conda's compat package, somebody's copy. (`lib/stubs` is for linkers alone.)
LIBCUDA = ("/lib/libcuda.so.1", "/lib64/libcuda.so.1", "/cuda-compat/libcuda.so.1", "/compat/libcuda.so.1")
#: What just-in-time builds take when nothing names another compiler.
COMPILERS = ("/usr/bin/gcc", "/usr/bin/cc", "/usr/bin/clang", "/usr/local/bin/gcc", "/usr/local/bin/cc")
MPI_NAMES = ("libmpi.so.40", "libmpi.so.12", "libmpi.so")
MPI_FOLDERS = ("/opt/hpcx/ompi/lib", "/usr/local/mpi/lib", "/usr/local/lib", "/usr/lib64/openmpi/lib")


def testify(_name: str, say: "Say", where: "Where") -> None:
    """Describes each environment as it is found: what came before a deadline stays."""
    say(say={"environments": {}})
    libc = _libc(where)
    if libc:
        say(say={"glibc": libc})
    seen = set()  # type: set[tuple[int, int]]
    found = 0
    for prefix, is_named in _places(where, say):
        if found >= ENVIRONMENTS_MAX:
            say(say={"left_out": f"more than {ENVIRONMENTS_MAX} environments"})
            return
        say(say={"at": "looking into " + prefix})
        sites = _sites(where.root, prefix, seen)
        names = {site: _site_names(where.root, site) for site in sites}
        if not is_named and not any(ENGINES.match(name) for listed in names.values() for name in listed):
            continue
        found += 1
        described = _describe(where, prefix, sites, names)
        described["named"] = is_named or prefix in _callers_own(where)
        say(say={"environments": {_text(prefix): described}})


# --- where environments lie -----------------------------------------------------------------------


def _places(where: "Where", say: "Say") -> "list[tuple[str, bool]]":
    """Prefixes that may be environments, the named and the caller's own first; each once."""
    root = where.root
    found = [(_prefix(path), True) for path in where.caller.environments]
    if not where.caller.only_named:
        found += [(prefix, False) for prefix in [*_callers_own(where), "/usr"]]
        far = _far(root)
        for top in ("/opt", "/srv", "/root", "/home"):
            say(say={"at": "listing " + top})
            folders = [] if top in far else [f"{top}/{name}" for name in _names(root, top, NAMES_MAX)]
            looked = [f for folder in folders if folder not in far for f in _below(root, folder, top)]
            found += [(prefix, False) for folder in looked[:PLACES_MAX] for prefix in _found_at(root, folder)]
        if far:
            say(say={"not_searched": sorted(far)[:50]})
    return [place for i, place in enumerate(found) if place[0] and place[0] not in [p for p, _ in found[:i]]]


def _far(root: "Root") -> "set[str]":
    """Mount points of network file systems and automounters: a look into each home would mount them all."""
    try:
        lines = root.read("/proc/self/mounts", TEXT_MAX).decode("utf-8", "replace").splitlines()
    except OSError:
        return set()
    fields = [line.split(" ") for line in lines if line.count(" ") >= 3]
    return {f[1] for f in fields if re.match(FAR, f[2]) and re.match(r"/(opt|srv|root|home)(/|$)", f[1])}


def _found_at(root: "Root", folder: str) -> "list[str]":
    """The environments at a folder: itself, with those of a conda installation, or its own venv."""
    if root.exists(folder + "/pyvenv.cfg"):
        return [folder]
    if root.exists(folder + "/conda-meta"):
        inner = _names(root, folder + "/envs", NAMES_MAX)
        return [folder, *(f"{folder}/envs/{name}" for name in inner if name[0] != ".")]
    own = (folder + "/.venv", folder + "/venv")
    return [prefix for prefix in own if root.exists(prefix + "/pyvenv.cfg")]


def _callers_own(where: "Where") -> "list[str]":
    return [_prefix(where.caller.values.get(n, "")) for n in ("VIRTUAL_ENV", "CONDA_PREFIX")]


def _below(root: "Root", folder: str, top: str) -> "list[str]":
    """A folder, and what lies in it: under any name below /opt and in homes, else under the usual ones."""
    names = _names(root, folder, NAMES_MAX) if top in ("/opt", "/home") else USUAL
    return [folder, *(f"{folder}/{name}" for name in names)]


def _prefix(path: str) -> str:
    """The environment that a path means: itself, that of an interpreter, or that of a site directory."""
    path = os.path.normpath(path) if path.startswith("/") else ""
    interpreter = re.match(r"(.*)/bin/python[\d.]*$", path)
    site = re.match(r"(.*?)/lib(?:64)?/python3[\d.]*(?:/(?:site|dist)-packages)?$", path)
    chosen = interpreter or site
    return (chosen.group(1) or "/usr") if chosen else path


def _sites(root: "Root", prefix: str, seen: "set[tuple[int, int]]") -> "list[str]":
    """The site directories of a prefix that were not seen before, in the order of `sys.path`."""
    tops = ["/usr/local", "/usr"] if prefix == "/usr" else [prefix]
    found = []
    for top in tops:
        for lib in ("lib", "lib64"):
            folder = f"{top}/{lib}"
            for name in _names(root, folder, 5000):
                if re.match(r"python3(\.\d{1,2}t?)?$", name):
                    found += [f"{folder}/{name}/{kind}" for kind in ("site-packages", "dist-packages")]
    return [site for site in found if _is_new(root, site, seen)]


def _is_new(root: "Root", path: str, seen: "set[tuple[int, int]]") -> bool:
    try:
        fd = root.open(path)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    key = (status.st_dev, status.st_ino)
    is_new = key not in seen
    seen.add(key)
    return is_new


def _names(root: "Root", path: str, most: int) -> "list[str]":
    try:
        return root.names(path)[:most]
    except OSError:
        return []


def _site_names(root: "Root", site: str) -> "list[str]":
    """The names in a site directory. Of a very full one those past the limit that matter here are kept."""
    listed = _names(root, site, sys.maxsize)
    return listed[:SITE_NAMES_MAX] + [name for name in listed[SITE_NAMES_MAX:] if re.match(RELEVANT, name)]


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


# --- one environment ------------------------------------------------------------------------------


def _describe(where: "Where", prefix: str, sites: "list[str]", names: "dict[str, list[str]]") -> "Document":
    root = where.root
    config = _fields(root, prefix + "/pyvenv.cfg", CONFIG_LINE)
    home = config.get("home", "")
    if config.get("include-system-site-packages", "").lower() == "true" and home.startswith("/"):
        # It sees its base's packages, too.
        more = _sites(root, home.rpartition("/bin")[0] or "/usr", set())
        names.update({site: _site_names(root, site) for site in more if site not in names})
        sites = sites + [site for site in more if site not in sites]
    tools = [name for name in _names(root, prefix + "/bin", SITE_NAMES_MAX) if _is_tool(name)][:20]
    said = {
        "kind": _kind(root, prefix, bool(config)),
        "config": config,
        "sites": [_text(site) for site in sites],
        "distributions": _distributions(sites, names),
        "programs": [f"{prefix}/bin/{name}" for name in tools] + [p for p in COMPILERS if root.exists(p)],
        "headers": _headers(root, prefix, config, sites),
        "mpi": _mpi(where, prefix),
        "libcuda": [_text(path) for path in (prefix + place for place in LIBCUDA) if root.exists(path)],
        "standard_library": elf.scan(root, prefix + "/lib/libstdc++.so.6", elf.GLIBCXX),
    }  # type: Document
    for site in sites:
        _look_at_site(root, site, names[site], said)
    said.setdefault("libraries", []).extend(_loadable(where, prefix, said))  # type: ignore[attr-defined]
    return said


def _loadable(where: "Where", prefix: str, said: "Document") -> "list[str]":
    """CUDA libraries that extensions ask for and that lie in its own `lib`, or where the loader looks."""
    linked = said.get("linked", {}).values()  # type: ignore[attr-defined]
    wanted = {name for one in linked for name in one["needs"] if re.match(CUDA_LIBRARY, name)}
    found = []
    for soname in sorted(wanted)[:16]:
        folders = [prefix + "/lib", *where.caller.library_dirs()]
        places = [f"{folder}/{soname}" for folder in folders if where.root.exists(f"{folder}/{soname}")]
        found += [_text(path) for path in (*places, where.default_file(soname)) if path][:1]
    return found


def _kind(root: "Root", prefix: str, is_venv: bool) -> str:
    if is_venv:
        return "venv"
    return "conda" if root.exists(prefix + "/conda-meta") else "system" if prefix == "/usr" else ""


def _look_at_site(root: "Root", site: str, names: "list[str]", said: "Document") -> None:
    """Adds what one site directory tells: the first that has a thing counts."""
    for name in names:
        if re.match(READ, name) and name.endswith(".dist-info"):
            metadata = _read(root, f"{site}/{name}/METADATA").split(b"\n\n")[0]
            asked = [_decoded(m) for m in re.findall(REQUIRES_LINE, metadata)]
            said.setdefault("requires", {}).setdefault(name, [a for a in asked if re.match(ASKED, a)][:80])  # type: ignore[attr-defined]
            tags = re.findall(TAG_LINE, _read(root, f"{site}/{name}/WHEEL"))
            said.setdefault("tags", {}).setdefault(name, [_decoded(t) for t in tags][:20])  # type: ignore[attr-defined]
    if "torch" in names:
        said.setdefault("torch", _fields(root, site + "/torch/version.py", VERSION_LINE))
    for path in PTXAS:
        release = elf.scan(root, f"{site}/{path}", elf.PTXAS_RELEASE)
        if release:
            said.setdefault("ptxas", {}).setdefault(path, release)  # type: ignore[attr-defined]
    for folder in LIBRARY_FOLDERS:
        if folder.split("/")[0] in names:
            listed = [n for n in _names(root, f"{site}/{folder}", 3000) if re.match(LIBRARY, n)]
            said.setdefault("libraries", []).extend(f"{site}/{folder}/{n}" for n in listed[:40])  # type: ignore[attr-defined]
    for path in _objects(root, site, names):
        linked = elf.linked(root, f"{site}/{path}")
        if linked:
            said.setdefault("linked", {}).setdefault(path, linked)  # type: ignore[attr-defined]


def _is_tool(name: str) -> bool:
    return name in ("nvcc", "gcc", "cc", "ninja", "ptxas", "mpirun") or name.endswith("-linux-gnu-cc")


def _distributions(sites: "list[str]", names: "dict[str, list[str]]") -> "list[str]":
    """`torch-2.9.1+cu128.dist-info`, in the order in which an import would find them."""
    found = [
        _text(name)
        for site in sites
        for name in names[site]
        if name.endswith((".dist-info", ".egg-info")) and re.match(RELEVANT, name)
    ]
    # Engines first: a crowd of others must not push one over the edge. Of one name the order stays.
    found.sort(key=lambda name: not re.match(READ, name))
    return found[:DISTRIBUTIONS_MAX]


def _headers(root: "Root", prefix: str, config: "dict[str, str]", sites: "list[str]") -> "dict[str, bool]":
    """Whether `Python.h` is there for each interpreter: in the prefix, or where its base lies.

    An interpreter whose headers this user may not look for is left out.
    """
    home = config.get("home", "").rpartition("/bin")[0]
    bases = [prefix] + [home] * home.startswith("/")
    found = {}
    for site in sites:
        minor = re.search(r"/python(3\.\d{1,2})/", site)
        if minor:
            paths = [f"{base}/include/python{minor.group(1)}/Python.h" for base in bases]
            answers = [_is_there(root, path) for path in paths]
            if True in answers or None not in answers:
                found[minor.group(1)] = True in answers
    return found


def _is_there(root: "Root", path: str) -> "bool | None":
    """None where that cannot be told."""
    try:
        os.close(root.open(path))
    except OSError as exc:
        return False if exc.errno in (errno.ENOENT, errno.ENOTDIR) else None
    return True


def _mpi(where: "Where", prefix: str) -> str:
    """Where a libmpi lies that this environment could load; empty where none was found."""
    for soname in MPI_NAMES:
        own = [f"{folder}/{soname}" for folder in (prefix + "/lib", *MPI_FOLDERS)]
        found = [path for path in own if where.root.exists(path)] or [where.default_file(soname)]
        if found[0]:
            return _text(found[0])
    return ""


def _libc(where: "Where") -> str:
    """The C library that every interpreter of this host runs on: `2.39`. Of a sysroot nothing is said."""
    if not where.root.is_outer:
        return ""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


# --- bytes ----------------------------------------------------------------------------------------


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").strip()


def _read(root: "Root", path: str) -> bytes:
    try:
        return root.read(path, TEXT_MAX)
    except OSError:
        return b""


def _fields(root: "Root", path: str, line: bytes) -> "dict[str, str]":
    """The known lines of a file, quotes off; empty where it cannot be read."""
    found = re.findall(line, _read(root, path))
    return {_decoded(name): _decoded(value).strip("'") for name, value in found[:20]}


def _objects(root: "Root", site: str, names: "list[str]") -> "list[str]":
    """The extensions whose needs are read, as paths below the site directory."""
    found = [path for path in LINKED if path.split("/")[0] in names]
    for folder, start in LINKED_STARTS:
        if folder and folder not in names:
            continue
        listed = _names(root, f"{site}/{folder}", 3000) if folder else names
        mine = [name for name in listed if name.startswith(start) and name.endswith(".so")][:4]
        found += [f"{folder}/{name}" if folder else name for name in mine]
    return [path for i, path in enumerate(found) if path not in found[:i]][:16]
