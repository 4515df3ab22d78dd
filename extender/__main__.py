"""`python -m extender`: the same as the command `gpu-extender`."""

from extender.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
