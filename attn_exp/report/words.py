"""What the templates of all pages and Markdown reports say: a sentence is mended here, in one place.

Braces hold what a template fills in. The words for a number stand beside it: the heads and meanings of columns in
`experiment/row.py`, the stages of attention in `report/explain.py`, the caption of a figure in its own file.
"""

from __future__ import annotations

# Sections of several pages
WHERE_IT_COMES_FROM = "Where it comes from"
WHAT_IT_SAYS = "What it says"
FIGURES = "Figures"
PLOTS = "Plots"
CHECK = "Check: {name}"
FIRST_OF = "The first {shown} of {all} {what}."
LINES, ROWS, POINTS = "lines", "rows", "points"

# The report of a run: its head
RUN_IT_AGAIN = "Run it again:"
AXES = "The letters of the axes"
SHAPES = "Shapes such as [t d] = [{sizes} …] say how many rows and columns a table has:"
SECTIONS = "Sections"
STEP_BY_STEP = "{title}, step by step"

# Its comparison
COMPARISON = "Comparison"
ALL_VARIANTS = "All variants"
ALL_VARIANTS_MORE = "All variants, more columns"
READING_VIEW = "Reading view"
READING_LEAVES_OUT = "without units in the last place, operations and bytes"
SAME_FOR_ALL = "The same for all:"
MORE_COLUMNS = "More columns:"
WHAT_COLUMNS_MEAN = "What the columns mean"

# Figures that a document prints
PUBLISHED = "Published figures"
ALL_PUBLISHED = "All published figures"
QUANTITY, AGREES, LARGEST_DIFFERENCE, TOLERANCE = "quantity", "agrees", "largest difference", "tolerance"
NUMBERS_AND_NOTES = "numbers and notes"
PRINTED_AND_COMPUTED = "printed and computed"

# A function of the reader's own
TO_MEND_IT = "To mend it:"
DOES_NOT_HOLD = "does not hold"
SMALLEST_INPUT = "The smallest input that fails"
SAME_IN_A_RUN = "The same in a run:"
MINE, RIGHT, MINE_BESIDE_RIGHT = "mine", "right", "mine beside right"

# Weights, and what a reader can move
WEIGHTS = "Weights"
WEIGHTS_BY_HEAD = "Weights, head by head"
ONE_SCALE = (
    "Each row is a query, each column a {column}; colour grows with the square root of a weight, from 0 to {top}, in "
    "every table and picture of weights on this page."
)
GREY_IS_MASKED = "Grey places are masked."
CHOOSE_A_PICTURE = "Choose a picture to see it large."
TURN_THE_SCALE = "Turn the scale yourself"
TURN_THE_SCALE_HOW = (
    "The weights of one variant at any multiplier of its scores, computed here, in this page. Small multipliers spread "
    "attention evenly; large ones give it all to one key."
)
VARIANT, MULTIPLIER, THIS_RUN, NO_SCALING = "Variant", "Multiplier", "this run", "no scaling"
ONE_MINUS_OTHER = "Two variants, one minus the other"
SHOW, MINUS = "Show", "minus"
FOLLOW = "Follow a query through the page"

# A walk through one function
THE_WAY_OF = "The way of {title}"
SIDE_BY_SIDE = "side by side"
FLOW = "From the input to the output; each box leads to its table."
NOT_CHANGED_HERE = "Numbers cannot be changed in the page here: {why}."
SHOWN = "Shown: {left_out}; results.npz holds all."
COLUMNS_FROM_THE_LEFT = "Columns, from the left:"
COLUMNS_FOR = "{count} for {whom}"
SUM_OF_VALUES = "Each token as a sum of values"
NAN_AS_WEIGHTS = "NaN, as its weights are"
OTHER_VALUES = "+ {rest} of other values"

# The report of a sweep
COMMAND = "command"
COMMAND_CONTINUES = "The command, which also continues it:"
SAME_EVERYWHERE = "the same everywhere: {settings}"
LEFT_OUT = "{count} combinations left out"
RESULTS = "Results"
MEAN = "Mean; only the settings that differ. All rows:"
MEAN_OVER_SEEDS = (
    "Mean over {seeds} seeds ± half of its 95% confidence interval; only the settings that differ. All rows:"
)
REPEAT = "repeat"
TO_REPEAT_A_ROW = "To repeat a row:"
PAGE_HAS_ALL = "The page report.html has the command of every row shown."
NO_RESULT = "No point has a result."
ALL_FAILED = "No point has a result; all that ran failed."
LOOK_CLOSER = "Look closer"
EXTREMES = "The smallest and the largest"
METRIC, WHICH, NUMBER, VARIANT_HEAD, SETTINGS = "metric", "which", "number", "variant", "settings"
EXTREME_AT = "{which} {metric}: {number}, {variant} at {settings}:"
EFFECTS = "Effects"
ALSO_IN = "Also in"
FOR_PAPERS_IN = ", and for papers in"
ALL_IN_EFFECTS = "All {count} are in effects.csv."
SHARES = "What explains how much"
SHARES_REST = "What is missing to 100% is what three settings or more do together."
PERCENTILES = "Percentiles"
COUNT_LINES = "{count} lines"
ALL_ARE_IN = "All are in"
DISAGREEMENTS = "Disagreements with published results"
AGREE = "{settings}: {tally} agree:"
FAILURES = "Failures"
ALL_WITH = "(all with {shared})"

# Two runs or sweeps side by side
VERSUS = "Side by side"
FIRST, SECOND = "first:", "second:"

# The classroom
BY_HAND = "Attention by hand"
KEY_IN_BRACKETS = "(key)"
BY_HAND_KEY = "Attention by hand: the key"
NAME = "Name:"
COMPUTE_EACH_BOX = "Compute each box from the ones above it, to {digits} decimals."
TOKENS_ARE_COLUMNS, TOKENS_ARE_ROWS = "Tokens are columns.", "Tokens are rows."
ROUNDING_IS_ACCEPTED = "A number may be off by what rounding earlier boxes does to it."
CHECKED_AT_ONCE = (
    "Typed numbers are checked at once: green is right, orange is right from a wrong number before, red is wrong."
)
SAVE_ANSWERS = "Save answers.csv"
GIVEN, WHAT_IS_RIGHT, FILL_IN = "Given", "What is right", "Fill in"
HEAD = "head {number}"
WHAT_MISTAKES_GIVE = "What each mistake would give"
FIRST_SEEN_IN = "first seen in {stage}"
GRADES = "Grades"
COUNT_ANSWERS = "{count} answers."
WHICH_MISTAKE = "Which mistake how often"
MISTAKE, STUDENTS_HEAD, WHAT_IT_IS = "mistake", "students", "what it is"
NO_MISTAKE = "No mistake by name."
STUDENTS = "Students"
