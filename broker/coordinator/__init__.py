"""Coordinators: machines that keep their state in an internal topic, and nothing else.

A machine looks at its state and answers a request with records and a response
(``CoordinatorResult``); ``runtime`` appends the records, and only then shows them to the machine
(``replay``), which changes what it remembers. So what a restart reads back is what was there.
Nothing here waits, knows a socket or a file: the log comes in by ``ports``, time as an argument.
"""
