"""The demo: a month of real flights through a broker, two crashes, and a report by Spark.

    make demo                                    January, with everything that it needs installed
    python -m examples.flights --months 1,2      in an environment that has radiator-broker[demo]

Read in this order: ``radiator.yaml`` (the rules), ``publisher.py``, ``subscriber.py`` and ``worker.py`` (stock stomp.py
clients), ``acts.py`` (the script), ``checks.py`` (the claims), ``analysis.py`` (the Spark jobs).
"""
