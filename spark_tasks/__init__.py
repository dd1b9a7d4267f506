"""Spark reports, as they run in the Spark driver: no Django, no Celery, no Kafka client of Python.

``python -m spark_tasks run`` takes one job as a line of JSON on standard input (``spark_tasks.job``)
and tells how far it is, and what came out, as lines of JSON on standard output; whatever Spark logs
goes to standard error. End of file on standard input means that whoever asked is gone: the process
ends, and Spark's Java with it.

A report is one file in ``spark_tasks/reports`` (or in a directory of the user's): a module with a
``REPORT`` (``spark_tasks.report.Report``). Reports are described without Spark, so that pages and
forms need none: report modules take ``functions`` and ``Window`` from ``spark_tasks.lazy``.

For programs of your own: ``from spark_tasks.reading import read, read_stream, read_result``.
"""
