"""What the parts of a plan have in common."""

from __future__ import annotations


class Value:
    """Equality, hash and repr by fields for frozen dataclasses; written once, they load faster than generated ones."""

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
