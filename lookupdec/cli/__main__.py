"""``python -m lookupdec.cli``: the same as the ``lookupdec`` command."""

from lookupdec.cli import main

main()
