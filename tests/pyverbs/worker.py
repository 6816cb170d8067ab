"""Runs tests of rdma-core's pyverbs suite, one by one, and reports each.

worker.py TESTS REPORT: TESTS is the directory of the suite; names of tests come on
standard input, one a line. REPORT is a FIFO. A line goes there before each test, with
"start" and its name, and one after it, with its name, result, seconds and reason.
Whoever reads them decides when a test hangs.
"""
import os
import sys
import time
import unittest

tests, fifo = sys.argv[1:3]
names = sys.stdin.read().split()
report = open(fifo, 'w', buffering=1)
sys.path[:0] = [os.path.dirname(tests), tests]
from args_parser import parser  # noqa: E402

sys.argv[1:] = ['--dev', 'rvt0']
parser.parse_args()


def say(*fields):
    report.write('\t'.join(' '.join(str(f).split()) for f in fields) + '\n')


def connection_manager():
    """Does the device come with /dev/infiniband/rdma_cm?"""
    try:
        from pyverbs.cmid import CMEventChannel
        CMEventChannel().close()
        return True
    except Exception:
        return False


def load(name):
    """The test, or None if this version of the suite does not have it."""
    module, case, method = name.rsplit('.', 2)
    try:
        found = getattr(__import__(module, fromlist=[case]), case)
        return found(method)
    except (ImportError, AttributeError, ValueError):
        return None


def verdict(result):
    if result.errors or result.failures:
        what = 'ERROR' if result.errors else 'FAIL'
        text = (result.errors or result.failures)[0][1].strip()
        return what, ' | '.join(text.splitlines()[-4:])
    if result.skipped:
        return 'skip', result.skipped[0][1]
    return 'ok', ''


cm = connection_manager()
for name in names:
    say('start', name)
    test = load(name)
    if test is None:
        say(name, 'absent', 0, 'not in this version of the suite')
        continue
    if '.test_rdmacm.' in name and not cm:
        say(name, 'absent', 0, 'there is no connection manager')
        continue
    result, began = unittest.TestResult(), time.monotonic()
    test.run(result)
    what, why = verdict(result)
    say(name, what, '%.2f' % (time.monotonic() - began), why)
say('end', '')
