"""What explains evidence, which is answers or numbers; where nothing does, which stage differs first.

May import from `finding` and all rooms above that.
"""
