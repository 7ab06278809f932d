"""A server that speaks SGLang's command line, log, HTTP and metrics, and computes nothing.

It is for tests and for rehearsing a search space of a large machine on a small
one, and says "emulated" wherever it says anything about itself.
"""
