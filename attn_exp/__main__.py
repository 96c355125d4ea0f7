import sys

if __name__ == "__main__":  # a spawned worker imports this file
    try:
        from attn_exp.cli import main

        main()
    except KeyboardInterrupt:  # before the command line's own handler is active
        sys.exit(130)
