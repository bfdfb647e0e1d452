"""A device that is not there: ``gpu``, whose tensors lie in the memory of the host and compute on the CPU.

To torch it is a device like any other (PrivateUse1): a tensor says that it is on it, an operation that mixes it with
the CPU fails as on CUDA, and values are real. What a GPU would have to wait for is remembered, with the line of code
that made it wait (`watching`): values that the host asks for, results whose shape depends on values, and copies between
host and device unless they are ``non_blocking``.
"""

import contextlib
import ctypes
import sys
from functools import cache
from numbers import Number
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

DLPACK_CPU, DLPACK_OTHER = 1, 12  # kinds of devices in DLPack, by which a tensor's memory changes its device
DEPENDS_ON_VALUES = {
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
    "bincount",
    "_local_scalar_dense",
}
PACKAGE = Path(__file__).resolve().parent.parent / "lv_fairseq"


class Wait(NamedTuple):
    """The host waits for the device."""

    operation: str
    place: str  # of the code that asked for it: torch does not count
    ours: bool  # whether that is a file of the package

    @property
    def file(self) -> str:
        return Path(self.place.rpartition(":")[0]).name


class Copy(NamedTuple):
    """Between host and device."""

    to_device: bool
    host: Tensor  # at the end that is the host; as long as it is here, no other memory has its address

    @property
    def bytes(self) -> int:
        return self.host.numel() * self.host.element_size()


class Watched:
    """What was seen inside `watching`."""

    def __init__(self):
        self.waits: List[Wait] = []
        self.copies: List[Copy] = []
        self.operations: List[str] = []

    @property
    def ours(self) -> List[Wait]:
        return [wait for wait in self.waits if wait.ours]


watched: List[Watched] = []


@contextlib.contextmanager
def watching() -> Iterator[Watched]:
    watched.append(Watched())
    try:
        yield watched[-1]
    finally:
        watched.pop()


class DeviceModule:
    """``torch.gpu``, as far as torch asks for it."""

    is_available = staticmethod(lambda: False)  # else data loaders ask for pinned memory, in other tests too
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16])


@cache
def gpu() -> torch.device:
    """The device. A process that has it keeps it."""
    _setup_privateuseone_for_python_backend("gpu", DeviceModule)
    gpu.library = torch.library.Library("_", "IMPL")  # what it registers is gone when it is
    gpu.library.fallback(compute, "PrivateUse1")
    return torch.device("gpu", 0)


def moved(module: nn.Module) -> nn.Module:
    """``module.to(gpu())``: parameters stay the same objects, as they do on devices that torch knows."""
    for parameter in module.parameters():
        new = nn.Parameter(parameter.detach().to(gpu()), parameter.requires_grad)
        vars(new).update(vars(parameter))
        torch.utils.swap_tensors(parameter, new)
    return module.to(gpu())


def on_host(tensor: Tensor) -> Tensor:
    """The memory of a tensor of the device, as one of the CPU; what is empty may grow there."""
    return with_address(tensor, DLPACK_CPU) if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype)


def on_device(tensor: Tensor) -> Tensor:
    return with_address(tensor, DLPACK_OTHER)


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def with_address(tensor: Tensor, kind: int) -> Tensor:
    """The same memory on another kind of device: DLPack's description of a tensor holds it after the address."""
    capsule = torch._C._to_dlpack(tensor.detach())
    ctypes.c_int32.from_address(pointer_of(capsule, b"dltensor") + 8).value = kind
    return torch._C._from_dlpack(capsule)


def is_ours(tensor: Tensor) -> bool:
    return not tensor.is_cpu


@cache
def declared(operation) -> Tuple[str, Tuple[bool, ...]]:
    """Its name, and which of its arguments are tensors."""
    schema = operation._schema
    return schema.name.split("::")[1], tuple(str(argument.type) == "Tensor" for argument in schema.arguments)


def compute(operation, *args, **kwargs) -> Any:
    """Every operation on the device."""
    name, are_tensors = declared(operation)
    for seen in watched:
        seen.operations.append(name)
    # torch gives a tensor that was a number in the program back as a number
    args = [torch.tensor(x) if tensor and isinstance(x, Number) else x for x, tensor in zip(args, are_tensors)]
    if name == "_copy_from":
        return copy(*args, **kwargs)
    if name == "resize_":
        return resize(*args[:2])
    hosts: Dict[int, Tuple[Tensor, Tensor]] = {}  # by identity: one that is given twice is the same one again

    def host(x: Any) -> Any:
        if isinstance(x, torch.device):
            return torch.device("cpu")
        if not isinstance(x, Tensor):
            return x
        if id(x) not in hosts:
            hosts[id(x)] = x, on_host(x) if is_ours(x) else x
        return hosts[id(x)][1]

    given, named = [each(host, x) for x in args], {name: host(x) for name, x in kwargs.items()}
    check_devices(name, [x for x, _ in hosts.values()], args)
    if name in DEPENDS_ON_VALUES or chooses_by_mask(name, args):
        remember_wait(name)
    with torch.no_grad():
        result = operation(*given, **named)
    for tensor, memory in hosts.values():
        if is_ours(tensor) and memory.shape != tensor.shape:  # an out= that has grown
            tensor.data = on_device(memory)
    mine = {id(memory): tensor for tensor, memory in hosts.values()}

    def back(x: Any) -> Any:
        return x if not isinstance(x, Tensor) else mine[id(x)] if id(x) in mine else on_device(x)

    return each(back, result)


def each(function: Callable, value: Any) -> Any:
    """Of a value, or of those in a list."""
    return type(value)(map(function, value)) if isinstance(value, (list, tuple)) else function(value)


INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


def check_devices(name: str, tensors: List[Tensor], args) -> None:
    """One device, but for numbers; places on the CPU are copied first, as on CUDA."""
    strangers = [tensor for tensor in tensors if not is_ours(tensor) and tensor.dim()]
    places = [id(x) for x in args[1] if x is not None] if name in INDEXING else []
    if strangers and all(id(tensor) in places for tensor in strangers):
        remember_wait("copy to the device")
    elif strangers and any(map(is_ours, tensors)):
        shapes = ", ".join(f"{tuple(tensor.shape)} on {tensor.device}" for tensor in tensors)
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, but found {shapes}")


def chooses_by_mask(name: str, args) -> bool:
    """Whether places are given by a mask, and are not just filled with one value."""
    if name == "repeat_interleave":
        return True
    if name not in INDEXING:
        return False
    masked = any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    return masked and name != "index" and args[2].numel() != 1  # index asks for places by nonzero


def copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """From host to device, back, or on the device."""
    if is_ours(source) != is_ours(target):
        for seen in watched:
            seen.copies.append(Copy(is_ours(target), source if is_ours(target) else target))
        if not non_blocking:
            remember_wait("copy to the device" if is_ours(target) else "copy to the host")
    to, of = (on_host(tensor) if is_ours(tensor) else tensor for tensor in (target, source))
    with torch.no_grad():
        to.copy_(of)
    return target


def resize(tensor: Tensor, size: List[int]) -> Tensor:
    """Elements stay in their order, as far as there were any."""
    flat, new = on_host(tensor).flatten(), torch.empty(size, dtype=tensor.dtype)
    kept = min(len(flat), new.numel())
    new.view(-1)[:kept] = flat[:kept]
    tensor.data = on_device(new)
    return tensor


def remember_wait(operation: str) -> None:
    if watched:
        file, line = asking_code()
        wait = Wait(operation, f"{file}:{line}", file is not None and PACKAGE in Path(file).parents)
        for seen in watched:
            seen.waits.append(wait)


def asking_code() -> tuple:
    """File and line of the innermost code that is neither torch's nor this file's."""
    frame: Optional[Any] = sys._getframe()
    torch_folder = str(Path(torch.__file__).parent)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith((torch_folder, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return None, 0
