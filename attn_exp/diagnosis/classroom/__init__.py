"""Numbers of a person, judged: what a worksheet asks, what each mistake gives there, slips and mistakes by name.

May import from `pairs` and all rooms above that.
"""
