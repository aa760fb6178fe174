"""TCP relays between clients and servers, and between ranks: lines that can be cut, slowed, reset and half-closed.

All relays run on one thread of their own. They change no bytes: they only decide when and whether bytes go on.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

CHUNK = 64 * 1024
# A chunk of a line with a limited rate: its pauses are then short.
SMALL_CHUNK = 2 * 1024
# Longest time to wait for the relays' thread.
LIMIT = 20.0
CONNECT_LIMIT = 5.0


class Relays:
    """The thread of all relays."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="relays", daemon=True)
        self.thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on the thread of the relays, and waits for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT)

    def open(self, name: str) -> "Line":
        """A new line, which leads nowhere yet, at a free port."""
        line = Line(self, name)
        self.call(line.listen())
        return line

    def close(self) -> None:
        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT)


class Line:
    """One port that leads to another one. `target` is None while nothing is there: connections are then refused."""

    def __init__(self, relays: Relays, name: str) -> None:
        self.relays = relays
        self.name = name
        self.target: int | None = None
        self.port = 0
        # Seconds that every chunk waits.
        self.delay = 0.0
        # Bytes per second and direction; 0: no limit.
        self.rate = 0
        # True: connections are refused, as where no server listens.
        self.is_refusing = False
        self.is_whole = asyncio.Event()
        self.is_whole.set()
        self.writers: set[asyncio.StreamWriter] = set()
        self.server: asyncio.Server | None = None

    async def listen(self) -> None:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = None if self.is_refusing else self.target
        if target is None:
            abort(writer)
            return
        try:
            there = asyncio.open_connection("127.0.0.1", target, limit=CHUNK)
            far_reader, far_writer = await asyncio.wait_for(there, CONNECT_LIMIT)
        except (OSError, asyncio.TimeoutError):
            abort(writer)
            return
        self.writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        # RuntimeError: more bytes for a direction that was half-closed.
        except (OSError, RuntimeError, asyncio.CancelledError):
            abort(writer)
            abort(far_writer)
        finally:
            self.writers -= {writer, far_writer}
            writer.close()
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(SMALL_CHUNK if self.rate else CHUNK)
            await self.is_whole.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            if self.rate:
                await asyncio.sleep(len(data) / self.rate)
            if not data:
                if not writer.is_closing():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()

    def cut(self) -> None:
        """No byte arrives any more, and no connection ends: a pulled cable."""
        self.relays.loop.call_soon_threadsafe(self.is_whole.clear)

    def restore(self) -> None:
        """A line without faults. Bytes that waited arrive now."""
        self.delay, self.rate = 0.0, 0
        self.relays.loop.call_soon_threadsafe(self.is_whole.set)

    def reset(self) -> None:
        """Ends all connections with RST."""

        async def act() -> None:
            for writer in list(self.writers):
                abort(writer)

        self.relays.call(act())

    def half_close(self) -> None:
        """Ends one direction of all connections with FIN; the other one stays open."""

        async def act() -> None:
            for writer in list(self.writers)[::2]:
                with contextlib.suppress(OSError, RuntimeError):
                    if not writer.is_closing():
                        writer.write_eof()

        self.relays.call(act())

    def close(self) -> None:
        self.reset()

        async def act() -> None:
            if self.server is not None:
                self.server.close()

        self.relays.call(act())


def abort(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
