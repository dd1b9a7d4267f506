"""Everything about Spark that is not computing: where it is kept, how it gets there, how a report's
process is started and watched. Computing is ``spark_tasks``, in a process of its own.
"""
