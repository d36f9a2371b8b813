"""Pauses of the threads of flightd.py at random places, so that they meet in orders which they would rarely show by themselves."""

import os
import random
import sys
import threading
import time

_CALLS_TRACED = 0.5  # part of the calls of functions
_PAUSED = 0.01  # part of the steps of the interpreter in a traced call
_PAUSES = (0, 0, 0.001, 0.01, 0.1)  # seconds; 0 lets another thread run


def start(path):
    """Pauses in the code of the file if FLIGHTD_TEST_PAUSES has a seed."""
    seed = os.environ.get("FLIGHTD_TEST_PAUSES")
    if not seed:
        return
    dice = random.Random(seed)

    def at_step(frame, event, arg):
        if event == "opcode" and dice.random() < _PAUSED:
            time.sleep(dice.choice(_PAUSES))
        return at_step

    def at_call(frame, event, arg):
        if frame.f_code.co_filename != path or dice.random() >= _CALLS_TRACED:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return at_step
    threading.settrace(at_call)
    sys.settrace(at_call)
