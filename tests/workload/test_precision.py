"""Which precision an op class runs in, and what a GPU without it does."""

from __future__ import annotations

import pytest

from clustersim.errors import InputError
from clustersim.hardware.gpu import Gpu
from clustersim.workload.device import Device
from clustersim.workload.precision import OpPrecision, activation_bytes, element_bytes, precision_of


def test_narrow_formats_stay_in_linear_layers_and_experts() -> None:
    assert [precision_of(kind, "fp8") for kind in ("linear", "expert", "attention", "head")] == [
        "fp8",
        "fp8",
        "bf16",
        "bf16",
    ]
    assert precision_of("head", "fp16") == "fp16"
    assert precision_of("attention", "fp8", OpPrecision(attention="fp8")) == "fp8"


def test_bytes() -> None:
    assert (element_bytes("bf16"), element_bytes("fp8"), element_bytes("fp32")) == (2.0, 1.0, 4.0)
    assert (activation_bytes("bf16"), activation_bytes("fp8"), activation_bytes("tf32")) == (2.0, 2.0, 4.0)
    # block formats carry their scales
    assert 1.0 < element_bytes("mxfp8") < 1.1
    assert 0.5 < element_bytes("nvfp4") < 0.6


def test_a_gpu_without_the_format_computes_in_the_next_wider() -> None:
    ampere, volta = Device(Gpu.preset("a100-80g")), Device(Gpu.preset("v100-32g"))
    assert ampere.peak("fp8") == ampere.peak("bf16") == 312e12
    assert volta.peak("bf16") == 125e12
    assert Device(Gpu.preset("b200")).peak("nvfp4") > Device(Gpu.preset("b200")).peak("fp8")


def test_no_wider_format_is_an_error() -> None:
    gpu = Gpu.preset("a100-80g").model_copy(update={"peak": {"fp8": 1e15}})
    with pytest.raises(InputError, match="no peak for fp32"):
        Device(gpu).peak("fp32")
