"""The pure-Python backend: the readable specification of headrace, module for module the twin of ``rust/core/src``.

The way of the data: ``source`` -> ``frame`` -> ``json`` -> ``record`` -> ``detect`` -> ``dialect`` -> ``emit`` ->
``run``, wired together in ``parser``.
"""
