"""Long lines between hosts: frames on their way to a host arrive later, not at all, or all at once after a stall.

It does what netem does in kernels that have it. Each argument is a name of a host's line: the frames of the interface
NAME-a, behind which the host is, come out of NAME-b, which is on the bridge, and the other way around.
Says "ready", and then "done" after every line of orders on standard input: "delay MILLISECONDS", "loss PERCENT", "stall", "go".
"""

import fcntl
import heapq
import os
import random
import selectors
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


def interface(name):
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def main():
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    for name in sys.argv[1:]:
        host, bridge = interface(f"{name}-a"), interface(f"{name}-b")
        # On its way to a host a frame is disturbed, once.
        selector.register(host, selectors.EVENT_READ, (bridge, False))
        selector.register(bridge, selectors.EVENT_READ, (host, True))
    print("ready", flush=True)
    delay, loss, stalled = 0.0, 0.0, False
    draws = random.Random(7)
    frames, number = [], 0  # (when it is due, in which order it came, where to, what)
    while True:
        wait = None
        if frames and not stalled:
            wait = max(0.0, frames[0][0] - time.monotonic())
        for key, _ in selector.select(wait):
            if key.fileobj is sys.stdin:
                order = sys.stdin.readline().split()
                if not order:
                    return
                if order[0] == "delay":
                    delay = float(order[1]) / 1000
                elif order[0] == "loss":
                    loss = float(order[1]) / 100
                else:
                    stalled = order[0] == "stall"
                print("done", flush=True)
                continue
            frame = os.read(key.fileobj, 1 << 17)
            to, is_disturbed = key.data
            if is_disturbed and draws.random() < loss:
                continue
            due = time.monotonic() + (delay if is_disturbed else 0)
            number += 1
            heapq.heappush(frames, (due, number, to, frame))
        while frames and not stalled and frames[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(frames)
            try:
                os.write(to, frame)
            except OSError:
                pass  # A link that is down loses its frames.


main()
