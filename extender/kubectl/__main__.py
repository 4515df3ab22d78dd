"""`python -m extender.kubectl`: the same as `kubectl gpu-extender`."""

from extender.kubectl.main import main

if __name__ == "__main__":
    raise SystemExit(main())
