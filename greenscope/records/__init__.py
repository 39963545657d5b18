"""Records on the wire and on disk: how `greenscope.model` becomes bytes and comes back.

docs/record-format.md is the contract for batches and recordings, docs/protocol.md for the
conversation between an agent and a collector.
"""
