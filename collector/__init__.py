"""greenscope-collector: takes the records of many agents, stores and reports them.

`collector.reports` needs neither gevent nor chdb: the agent prints with it too.
"""
