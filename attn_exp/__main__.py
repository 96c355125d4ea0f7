from attn_exp.cli import main

main()
