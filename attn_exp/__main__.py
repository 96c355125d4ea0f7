import sys

try:
    from attn_exp.cli import main

    main()
except KeyboardInterrupt:  # before the command line sees to it
    sys.exit(130)
