"""``python -m lookupdec``: the same as the ``lookupdec`` command."""

from lookupdec.cli import main

main()
