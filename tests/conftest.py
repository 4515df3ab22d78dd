"""How many examples hypothesis tries, and what no test has to load.

HYPOTHESIS_PROFILE: dev (the default), ci (always the same examples), mutants (the same, and few) or soak. It exists
because a checkout, a pipeline and a long search want different depths of one test. It must not know any test.
Invariant: no profile has a deadline, since a loaded machine is no bug.
"""

import os

from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("mutants", deadline=None, max_examples=40, derandomize=True, database=None)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "10000")),
    suppress_health_check=_SLOW_IS_FINE,
    print_blob=True,
)
# Every client makes a TLS context, and to read the machine's authorities into it takes a twentieth of a second. Tests
# trust none of them.
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
