"""python -m flightd of the installed package, as of the copied file."""

from flightd import _main

_main()
