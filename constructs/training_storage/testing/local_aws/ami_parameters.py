"""Public SSM parameters that name machine images, with made-up image ids.

Sources: Systems Manager public parameters (Amazon Linux 2023), AWS Deep Learning AMI documentation (parameters of the
base images with the NVIDIA driver), AWS Neuron documentation (base images), AWS PCS documentation (sample and
deep-learning images).
"""

import hashlib

_AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest"
_DEEP_LEARNING = "/aws/service/deeplearning/ami"
_NEURON = "/aws/service/neuron/dlami/base"
_PCS = "/aws/service/pcs/ami"
_ARCHITECTURES = ("x86_64", "arm64")


def _image_id(name: str) -> str:
    return "ami-" + hashlib.sha256(name.encode()).hexdigest()[:17]


def _names() -> list[str]:
    names = []
    for architecture in _ARCHITECTURES:
        names.append(f"{_AMAZON_LINUX}/al2023-ami-kernel-default-{architecture}")
        names.extend(
            f"{_AMAZON_LINUX}/al2023-ami-{variant}kernel-{kernel}-{architecture}"
            for variant in ("", "minimal-")
            for kernel in ("6.1", "6.12", "default")
        )
        names.extend(
            f"{_DEEP_LEARNING}/{architecture}/base-oss-nvidia-driver-gpu-{system}/latest/ami-id"
            for system in ("amazon-linux-2023", "ubuntu-22.04", "ubuntu-24.04")
        )
        names.extend(
            f"{_PCS}/{image}/{architecture}/latest/ami-id"
            for image in ("dlami-base-ubuntu2404", "dlami-base-ubuntu2204", "dlami-base-al2023")
        )
    names.extend(
        f"{_NEURON}/{system}/latest/image_id" for system in ("amazon-linux-2023", "ubuntu-22.04", "ubuntu-24.04")
    )
    return names


AMI_PARAMETERS = {name: _image_id(name) for name in _names()}
