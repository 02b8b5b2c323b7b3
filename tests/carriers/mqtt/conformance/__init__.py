"""
Conformance tests of MQTT 3.1.1 and 5, seen from a client: a codec that shares nothing with the
broker's, and a client that checks strictly what it is sent.

They run over memory transports on a clock. With the environment variable
C{SVCBROKER_TEST_MQTT=HOST:PORT} they run against whatever listens there instead: so the tests
themselves are tried against other brokers (mosquitto 2.0.11). Where C{SVCBROKER_TEST_STRICT} is
set too, none of the known deviations of those are forgiven.
"""
