"""Methods: a loss, plus what happens to its targets between epochs.

Every file in this package registers its methods by `@register`; a new method is a new file.
"""

from importlib import import_module
from pkgutil import iter_modules

from onepair.methods.method import METHODS, FixedTargets, Method, MethodInfo, create_method, find_method, register

__all__ = ["METHODS", "FixedTargets", "Method", "MethodInfo", "create_method", "find_method", "register"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
