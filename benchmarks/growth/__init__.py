"""
How svcbroker grows: C{python -m benchmarks.growth}.

 1. C{_daemon}: the real daemon, started again and again on the same data
 2. C{_asking}: what it is asked, and how long it takes
 3. C{_chain}, C{_topics}, C{_contents}, C{_connections}: one curve each
 4. C{_page}: the report
"""
