"""`greenscope-collector serve`: from an empty process to a listening one, and back."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys

import gevent  # type: ignore[import-untyped]
from gevent.event import Event  # type: ignore[import-untyped]

from collector.config import ServeConfig
from collector.ingest import Ingest
from collector.store.directory import DataDirectory
from collector.store.embedded import EmbeddedStore
from collector.worker import StoreWorker

_log = logging.getLogger("greenscope.collector")


def serve(config: ServeConfig) -> None:
    """Listens until SIGTERM or Ctrl-C; returns when what had arrived is stored.

    Raises:
        UsageError, CollectorError: it cannot begin.
    """
    config.check()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    stop = Event()
    numbers = signal.SIGTERM, signal.SIGINT
    signals = [gevent.signal_handler(number, stop.set) for number in numbers]
    try:
        with contextlib.closing(DataDirectory(config.data)) as directory:
            worker = StoreWorker(lambda: EmbeddedStore(directory.path))
            with contextlib.closing(worker):
                ingest = Ingest(config, worker)
                try:
                    ingest.start()
                    directory.announce(str(ingest.addresses[0]))
                    listening = " and ".join(map(str, ingest.addresses))
                    _log.info("listening on %s, storing in %s", listening, config.data)
                    stop.wait()
                    _log.info("stopping")
                finally:
                    ingest.stop()
    finally:
        for handler in signals:
            handler.cancel()
    _log.info("stopped")
