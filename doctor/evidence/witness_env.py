"""The Python environments of a host: which engines lie in them, read from their files.

Run by `collector.py`, in a child of its own. Python 3.6 syntax, and nothing beyond the standard library.
Nothing of an environment is imported or executed. Of its text files only lines of known forms are taken,
so that a link planted in somebody's home cannot carry another file into a bundle.
"""

import os
import re
import struct

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
DISTRIBUTIONS_MAX = 300

#: Names that users give to environments in their home directories, and installers to theirs.
USUAL = (
    *("venv", ".venv", "env", "vllm", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"),
    *("conda", ".conda"),
)

#: An environment without any of these has nothing to do with the GPU stack.
ENGINES = re.compile(r"(torch|vllm|sglang|tensorrt|tensorrt[-_.]llm|tensorrt[-_.](cu\d+|lean|dispatch).*)-\d", re.IGNORECASE)

#: The distributions that matter, by the beginning of their names.
RELEVANT = re.compile(
    r"(nvidia|cuda|torch|pytorch|vllm|sglang|sgl|tensorrt|triton|flash|xformers|deep|nccl|cupy|mpi4py|openmpi|mpich"
    r"|transformers|xgrammar|compressed|ninja|apex|bitsandbytes|cutlass|onnxruntime|numpy|ray|quack|fastsafetensors)",
    re.IGNORECASE,
)

#: Distributions whose wheel tags and pins are read.
READ = re.compile(
    r"(torch|torchvision|torchaudio|vllm|sglang|sgl[-_.]kernel|tensorrt[-_.]llm|tensorrt(?:[-_.]cu\d+)?(?:[-_.](?:libs|bindings))?"
    r"|flashinfer[-_.]\w+|flash[-_.]attn|xformers|triton|deep[-_.]gemm|torch[-_.]tensorrt)-\d",
    re.IGNORECASE,
)
#: What they ask for that is of interest here.
ASKED = re.compile(
    r"(torch|torchvision|triton|flashinfer|xformers|xgrammar|transformers|tensorrt|nvidia[-_.](nccl|cudnn)|numpy)", re.IGNORECASE
)

VERSION_LINE = re.compile(rb"^(__version__|cuda|hip|xpu|debug|git_version)\s*(?::[^=\n]{0,60})?=\s*('[^'\n]{0,100}'|None|False|True)", re.M)
CONFIG_LINE = re.compile(rb"^(home|version|version_info|include-system-site-packages|base-prefix)\s*=\s*([^\n]{1,300})", re.M)
TAG_LINE = re.compile(rb"^Tag:\s*([\w.-]{1,200})\s*$", re.M)
REQUIRES_LINE = re.compile(rb"^Requires-Dist:[ \t]*([A-Za-z0-9][^\n\x00-\x08\x0e-\x1f]{0,300})$", re.M)
PYTHON_LINE = re.compile(rb"^Requires-Python:[ \t]*([\w.,<>=!~ *]{1,100})$", re.M)

#: Files whose needs tell for which CUDA, C and C++ library an engine was compiled.
LINKED = (
    *("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so", "torch/lib/libtorch_cpu.so"),
    *("vllm/_C.abi3.so", "vllm/_moe_C.abi3.so", "vllm/_C_stable_libtorch.abi3.so", "sgl_kernel/common_ops.abi3.so"),
    *("tensorrt_bindings/tensorrt.so", "tensorrt_llm/libs/libtensorrt_llm.so", "tensorrt_libs/libnvinfer.so.10"),
)
LINKED_GLOBS = (("", "flash_attn_2_cuda"), ("vllm", "_C."), ("tensorrt_llm", "bindings."), ("tensorrt", "tensorrt."))
LIBRARY_FOLDERS = (
    *("tensorrt_libs", "tensorrt", "torch/lib", "tensorrt_llm/libs", "nvidia/cu12/lib", "nvidia/cu13/lib"),
    *("nvidia/cuda_runtime/lib", "nvidia/nccl/lib", "nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cuda_nvrtc/lib"),
)
LIBRARY = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvinfer|nvinfer_plugin|cuda|tensorrt_llm|torch_cuda|mpi|stdc\+\+)(-[0-9a-f]{6,12})?\.so[.\d]*$"
)
PTXAS = ("triton/backends/nvidia/bin/ptxas", "triton/backends/nvidia/bin/ptxas-blackwell", "triton/common/../third_party/cuda/bin/ptxas")
PTXAS_RELEASE = re.compile(rb"Cuda compilation tools, release (\d{1,2}\.\d{1,2})")
GLIBCXX = re.compile(rb"GLIBCXX_(3\.4\.\d{1,3})\b")
GLIBC = re.compile(rb"GLIBC_(2\.\d{1,3}(?:\.\d{1,2})?)\b")

#: What just-in-time builds take when nothing names another compiler.
COMPILERS = ("/usr/bin/gcc", "/usr/bin/cc", "/usr/bin/clang", "/usr/local/bin/gcc", "/usr/local/bin/cc")

SCAN_MAX = 96 << 20
TEXT_MAX = 1 << 20
ELF_TABLE_MAX = 8 << 20


def testify(_name: str, say: "Say", where: "Where") -> None:
    """Describes each environment as it is found: what came before a deadline stays."""
    named = list(where.caller.environments)
    say(say={"environments": {}})
    libc = _libc(where)
    if libc:
        say(say={"glibc": libc})
    seen = set()  # type: set[tuple[int, int]]
    found = 0
    for prefix, is_named in _places(where, say, named):
        if found >= ENVIRONMENTS_MAX:
            say(say={"left_out": "more than {} environments".format(ENVIRONMENTS_MAX)})
            return
        say(say={"at": "looking into " + prefix})
        sites = _sites(where.root, prefix, seen)
        names = {site: _names(where.root, site, 20000) for site in sites}
        if not is_named and not any(ENGINES.match(name) for listed in names.values() for name in listed):
            continue
        found += 1
        described = _describe(where, prefix, sites, names)
        described["named"] = is_named or prefix in _callers_own(where)
        say(say={"environments": {_text(prefix): described}})


# --- where environments lie -----------------------------------------------------------------------


def _places(where: "Where", say: "Say", named: "list[str]") -> "list[tuple[str, bool]]":
    """Prefixes that may be environments, the named and the caller's own first; each once."""
    root = where.root
    found = [(_prefix(path), True) for path in named]
    found += [(prefix, False) for prefix in _callers_own(where)]
    if where.caller.only_named:
        return [place for place in found[:len(named)] if place[0]]
    found.append(("/usr", False))
    looked = []  # type: list[str]
    for top in ("/opt", "/srv", "/root", "/home"):
        say(say={"at": "listing " + top})
        for name in _names(root, top, NAMES_MAX):
            looked += _below(root, "{}/{}".format(top, name), top)
    for prefix in looked[:PLACES_MAX]:
        if root.exists(prefix + "/pyvenv.cfg"):
            found.append((prefix, False))
        elif root.exists(prefix + "/conda-meta"):
            found.append((prefix, False))
            found += [("{}/envs/{}".format(prefix, n), False) for n in _names(root, prefix + "/envs", NAMES_MAX) if n[0] != "."]
    return [place for i, place in enumerate(found) if place[0] and place[0] not in [p for p, _ in found[:i]]]


def _callers_own(where: "Where") -> "list[str]":
    return [_prefix(where.caller.values.get(n, "")) for n in ("VIRTUAL_ENV", "CONDA_PREFIX")]


def _below(root: "Root", folder: str, top: str) -> "list[str]":
    """A folder, and what lies in it under any name (a home's, only under the usual ones)."""
    inner = ["{}/{}".format(folder, name) for name in USUAL] if top in ("/root", "/srv") else []
    if top in ("/opt", "/home"):
        inner = ["{}/{}".format(folder, name) for name in _names(root, folder, NAMES_MAX)]
        inner += ["{}/{}".format(folder, name) for name in USUAL if "{}/{}".format(folder, name) not in inner]
    return [folder] + inner


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
            folder = "{}/{}".format(top, lib)
            for name in _names(root, folder, 5000):
                if re.match(r"python3(\.\d{1,2}t?)?$", name):
                    found += ["{}/{}/{}".format(folder, name, kind) for kind in ("site-packages", "dist-packages")]
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


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


# --- one environment ------------------------------------------------------------------------------


def _describe(where: "Where", prefix: str, sites: "list[str]", names: "dict[str, list[str]]") -> "Document":
    root = where.root
    config = _fields(root, prefix + "/pyvenv.cfg", CONFIG_LINE)
    # A venv may see its base's packages, too.
    if config.get("include-system-site-packages", "").lower() == "true" and config.get("home", "").startswith("/"):
        base = config["home"].rpartition("/bin")[0] or "/usr"
        more = _sites(root, base, set())
        names.update({site: _names(root, site, 20000) for site in more if site not in names})
        sites = sites + [site for site in more if site not in sites]
    kind = "venv" if config else "conda" if root.exists(prefix + "/conda-meta") else "system" if prefix == "/usr" else ""
    said = {
        "kind": kind,
        "exists": root.exists(prefix),
        "config": config,
        "sites": [_text(site) for site in sites],
        "distributions": _distributions(sites, names),
        "programs": ["{}/bin/{}".format(prefix, n) for n in _names(root, prefix + "/bin", 20000) if _is_tool(n)][:20]
        + [path for path in COMPILERS if root.exists(path)],
        "conda": [_text(n) for n in _names(root, prefix + "/conda-meta", 5000) if re.match(r"(cuda-|libstdcxx|pytorch|gcc_|gxx_|python-)", n)][:60],
        "headers": _headers(root, prefix, config, sites),
        "mpi": _mpi(where, prefix, sites),
        "standard_library": _scan(root, prefix + "/lib/libstdc++.so.6", GLIBCXX, 16 << 20),
    }  # type: Document
    for site in sites:
        _look_at_site(root, site, names[site], said)
    return said


def _look_at_site(root: "Root", site: str, names: "list[str]", said: "Document") -> None:
    """Adds what one site directory tells: the first that has a thing counts."""
    for name in names:
        if READ.match(name) and name.endswith(".dist-info"):
            metadata = _read(root, "{}/{}/METADATA".format(site, name)).split(b"\n\n")[0]
            asked = [_decoded(m) for m in REQUIRES_LINE.findall(metadata)]
            said.setdefault("requires", {}).setdefault(name, [a for a in asked if ASKED.match(a)][:80])  # type: ignore[attr-defined]
            said.setdefault("requires_python", {}).setdefault(name, "".join(_decoded(m) for m in PYTHON_LINE.findall(metadata)[:1]))  # type: ignore[attr-defined]
            tags = TAG_LINE.findall(_read(root, "{}/{}/WHEEL".format(site, name)))
            said.setdefault("tags", {}).setdefault(name, [_decoded(t) for t in tags][:20])  # type: ignore[attr-defined]
    if "torch" in names:
        said.setdefault("torch", _fields(root, site + "/torch/version.py", VERSION_LINE))
    for path in PTXAS:
        release = _scan(root, "{}/{}".format(site, path), PTXAS_RELEASE, SCAN_MAX)
        if release:
            said.setdefault("ptxas", {}).setdefault(path, release)  # type: ignore[attr-defined]
    for folder in LIBRARY_FOLDERS:
        if folder.split("/")[0] in names:
            listed = [n for n in _names(root, "{}/{}".format(site, folder), 3000) if LIBRARY.match(n)]
            said.setdefault("libraries", []).extend("{}/{}/{}".format(site, folder, n) for n in listed[:40])  # type: ignore[attr-defined]
    for path in _objects(root, site, names):
        linked = _linked(root, "{}/{}".format(site, path))
        if linked:
            said.setdefault("linked", {}).setdefault(path, linked)  # type: ignore[attr-defined]


def _is_tool(name: str) -> bool:
    return name in ("nvcc", "gcc", "cc", "ninja", "ptxas", "mpirun") or name.endswith("-linux-gnu-cc")


def _distributions(sites: "list[str]", names: "dict[str, list[str]]") -> "list[str]":
    """`torch-2.9.1+cu128.dist-info`, in the order in which an import would find them."""
    found = [
        _text(name) for site in sites for name in names[site]
        if name.endswith((".dist-info", ".egg-info")) and RELEVANT.match(name)
    ]
    return found[:DISTRIBUTIONS_MAX]


def _headers(root: "Root", prefix: str, config: "dict[str, str]", sites: "list[str]") -> "dict[str, bool]":
    """Whether `Python.h` is there for each interpreter: in the prefix, or where its base lies."""
    bases = [prefix] + [b for b in (config.get("home", "").rpartition("/bin")[0],) if b.startswith("/")]
    minors = {m.group(1) for m in (re.search(r"/python(3\.\d{1,2})/", site) for site in sites) if m}
    places = {minor: ["{}/include/python{}/Python.h".format(base, minor) for base in bases] for minor in minors}
    return {minor: any(root.exists(path) for path in paths) for minor, paths in sorted(places.items())}


def _mpi(where: "Where", prefix: str, sites: "list[str]") -> str:
    """Where a libmpi lies that this environment could load; empty where none was found."""
    for soname in ("libmpi.so.40", "libmpi.so.12", "libmpi.so"):
        if where.root.exists("{}/lib/{}".format(prefix, soname)):
            return _text("{}/lib/{}".format(prefix, soname))
        for place in ("/opt/hpcx/ompi/lib/", "/usr/local/mpi/lib/", "/usr/local/lib/", "/usr/lib64/openmpi/lib/"):
            if where.root.exists(place + soname):
                return place + soname
        found = where.default_file(soname)
        if found:
            return _text(found)
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


def _fields(root: "Root", path: str, line: "re.Pattern[bytes]") -> "dict[str, str]":
    """The known lines of a file, quotes off; empty where it cannot be read."""
    found = line.findall(_read(root, path))
    return {_decoded(name): _decoded(value).strip("'") for name, value in found[:20]}


def _scan(root: "Root", path: str, wanted: "re.Pattern[bytes]", most: int) -> str:
    """The highest version that a binary's strings name; empty where it is not there or names none."""
    try:
        fd = root.open_file(path)
    except OSError:
        return ""
    found = set()  # type: set[bytes]
    tail = b""
    try:
        while most > 0:
            block = os.read(fd, 1 << 20)
            if not block:
                break
            most -= len(block)
            found.update(wanted.findall(tail + block))
            tail = block[-128:]
    except OSError:
        return ""
    finally:
        os.close(fd)
    return _highest(found)


def _highest(versions: "set[bytes]") -> str:
    numbers = sorted(tuple(int(part) for part in v.split(b".")) for v in versions)
    return ".".join(map(str, numbers[-1])) if numbers else ""


def _objects(root: "Root", site: str, names: "list[str]") -> "list[str]":
    found = [path for path in LINKED if path.split("/")[0] in names]
    for folder, start in LINKED_GLOBS:
        if folder and folder not in names:
            continue
        listed = names if not folder else _names(root, "{}/{}".format(site, folder), 3000)
        found += [n if not folder else "{}/{}".format(folder, n) for n in listed if n.startswith(start) and n.endswith(".so")][:4]
    return [path for i, path in enumerate(found) if path not in found[:i]][:16]


def _linked(root: "Root", path: str) -> "Document":
    """What an ELF file asks of others: libraries, and the newest C and C++ library symbols."""
    try:
        fd = root.open_file(path)
    except OSError:
        return {}
    try:
        return _dynamic(fd)
    except (OSError, struct.error, ValueError):
        return {}
    finally:
        os.close(fd)


def _dynamic(fd: int) -> "Document":
    """Of a 64-bit little-endian ELF file. Raises ValueError, struct.error and OSError on anything else."""
    head = os.pread(fd, 64, 0)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    table = os.pread(fd, min(size, 56) * min(count, 128), offset)
    segments = [struct.unpack_from("<IIQQQQQQ", table, i * 56) for i in range(len(table) // 56)] if size == 56 else []
    loads = [(s[3], s[2], s[5]) for s in segments if s[0] == 1]
    dynamic = next(((s[2], s[5]) for s in segments if s[0] == 2), None)
    if dynamic is None:
        raise ValueError("not dynamic")
    data = os.pread(fd, min(dynamic[1], 1 << 16), dynamic[0])
    entries = [struct.unpack_from("<qQ", data, i * 16) for i in range(len(data) // 16)]
    values = dict(entries)
    place = next((o + values[5] - v for v, o, n in loads if 5 in values and v <= values[5] < v + n), None)
    if place is None:
        raise ValueError("no string table")
    strings = os.pread(fd, min(values.get(10, 0), ELF_TABLE_MAX), place)
    needed = [strings[value:strings.find(b"\0", value)] for tag, value in entries if tag == 1 and value < len(strings)]
    return {
        "needs": [_decoded(name)[:100] for name in needed[:60]],
        "glibc": _highest(set(GLIBC.findall(strings))),
        "glibcxx": _highest(set(GLIBCXX.findall(strings))),
    }
