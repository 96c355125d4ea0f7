"""What is said in several places of pages, pictures and labels, and all that the scripts of pages say.

A sentence that stands in one place is told by its template, or by the function that makes it. Scripts get theirs from
here: `inline.scripts` hands them over. Braces hold what is filled in; a sentence that has a form for one and a form for
many stands here twice.
"""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return f" {AND} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# On several pages
WHERE_IT_COMES_FROM = "Where it comes from"
WHAT_IT_SAYS = "What it says"
WHAT_EXPLAINS_MOST = "What explains most"
MORE_EFFECTS = "The report and effects.csv have {count} more."
PLOTS = "Plots"
FIRST_OF = "The first {shown} of {all} {what}."
LINES, ROWS, POINTS = "lines", "rows", "points"
AND = "and"
TOKEN, KEY = "token", "key"
HEAD = "head {number}"
HEAD_OF = "{variants}, head {number}"
ALL_HAVE = "All with {settings}."
PUBLISHED_AGREE = "{tally} published results agree."

# At the top of a run's page
RUN_IT_AGAIN = "Run it again:"

# Its comparison
ALL_VARIANTS = "All variants"
ALL_VARIANTS_MORE = "All variants, more columns"
SAME_FOR_ALL = "The same for all:"

# Figures that a document prints
QUANTITY, AGREES, LARGEST_DIFFERENCE, TOLERANCE = "quantity", "agrees", "largest difference", "tolerance"

# A function of the reader's own
TO_MEND_IT = "To mend it:"
DOES_NOT_HOLD = "does not hold"
SMALLEST_INPUT = "The smallest input that fails"
SAME_IN_A_RUN = "The same in a run:"
MINE, RIGHT, MINE_BESIDE_RIGHT = "mine", "right", "mine beside right"

# Weights, and what a reader can move
AND_MORE = "and {count} more"
SHOW, BESIDE, NOTHING, QUERY, AS = "Show", "beside it", "nothing", "query", "as"
MAP_AND_LINES, MAP, LINES_ALONE = "map and lines", "map", "lines"
MEANS_OF_BLOCKS = "Means over blocks of weights, where they are never formed whole"
ANOTHER_LAYER, THEN = "To see another layer beside this one, run", ", then with the folders of both runs"
NO_WEIGHTS = "its weights were never formed"
ALL_QUERIES = "the rows of all queries"
FROM_TO = "{query} → {key}: {weight}"
SCALE = "The stronger a colour, the larger the weight: no colour is 0, the full colour is {top}, on the whole page."
GREY = "Grey places are masked."
SCALE_OF_READING = (
    "A row is a query, a column a key. "
    "The stronger a colour, the larger the weight: no colour is 0, the full colour is 1."
)
OUTPUTS_OF_READING = "A row is a token, a column a number of its output: blue is above 0, brown below."
WITH_POWER = "Small weights are coloured stronger than in proportion (to the power {power}), so that they can be seen."
THIS_RUN = "this run"
MEAN_ENTROPY = "Mean entropy {mean} of at most {most} nats; the largest of all weights is {largest}."
WEIGHTS_ALONE, OUTPUT, OUTPUT_OF_ALL = "weights", "output", "output of all heads"
NONE_IN, AT_MOST_IN = "{what}: none", "{what}: {largest}"
ROUNDING_IN = "{what}: {largest}, which is rounding"
NAN_IN = "{what}: NaN in one alone, elsewhere {largest}"
TOO_MANY_WEIGHTS = "weights: too many for a page to subtract"
TOO_MANY_FOR_LINES = "There are too many weights to draw lines or to turn the scale."
LINES_FROM = "Lines begin at a weight of {least}; a query that is followed shows its {count} strongest keys."
ONE_MINUS = "{one} minus {other}: {what}"
LARGEST_DIFFERENCES = "Largest difference: {differences}."
DIFFERENT_SHAPES = "their outputs have different shapes"
NOT_IN_THIS_PAGE = "The address names what is not in this page: {names}."
FIRST_INSTEAD = "The first choice is shown instead."
EMPTY_TOKEN = "(empty)"

# A first reading of the default run: two sentences a step
FIRST_READING, BACK, NEXT, LEAVE = "A first reading", "Back", "Next", "Leave the reading"
STEP_OF = "A first reading, {step} of {of}: {name}"
STEP_NO_SCALE, STEP_SCALE, STEP_HEADS, STEP_MASK, STEP_MIX = "no scale", "scale", "{heads} heads", "a mask", "W_o"
NO_SCALE = (
    "Without scaling, which is no row of this run, the query of {query} meets every key, with scores from {low} to "
    "{high}, and their softmax gives {key} {weight}. "
    "The weights have a mean entropy of {entropy} nats, where even shares would have {even}."
)
SCALED = (
    "The scores are divided by the square root of d = {size}, and {query} gives {key} {scaled} instead of {weight}. "
    "The mean entropy goes from {entropy} to {after} nats."
)
HEADS_PART = (
    "The {size} columns of Q, K and V part into {heads} heads of {part}, and each head attends by itself. "
    "Of {query}, head 1 gives the most to {one} ({first}), head 2 to {other} ({second})."
)
MASK_HIDES = (
    "A causal mask hides the keys that come later, so “{query}” attends only to itself. "
    "That moves the output by up to {masked}."
)
MIXES = (
    "Without the mask again, W_o mixes the heads, which stood side by side, into a vector for each token: that moves "
    "the output by up to {mixed}. This is {variant}, the last variant of this run."
)

BEFORE_MIXING, AFTER_MIXING = "output, the heads side by side", "output, mixed by W_o"

# Why numbers of a variant cannot be changed in the page: half a sentence each
WHY_COARSE = "{whose} {kinds}, and a page computes in float64"
WHY_PYTHON_ALONE = "{what} is computed in Python alone"
WHY_BECAME = "its tables show what became of the given queries, keys and values, not themselves"

# Numbers that a reader changes in the page
OTHERS_THAN_THE_RUN = "Numbers cannot be changed here: this page would compute others than the run."
TYPE_TO_CHANGE = "{name}: type to change a number, Escape takes it back"
TYPE_OVER = "Type over a number of {tables}, or drag it up or down, and all that follows is computed anew."
X_OR_W = "X or W"
IN_THE_RUN = "{cell}, in the run {number}"
LESS, MORE, OTHER_SIGN = "less", "more", "other sign"
CHANGED_NUMBERS = "Changed numbers"
CHANGED = "Changed: {numbers}. Old numbers are struck out. {still}"
NUMBERS_AND_MORE = "{numbers} and {count} more"
STAYS = "Grey parts are still those of the run, from before the change: {what}."
THE_SENTENCES = "the sentences at the top"
OF_THE_RUN = "Of the run, before the change."
BACK_TO_THE_RUN = "Back to the run's numbers"
AS_A_COMMAND, AS_YAML, COPY, COPIED = "Command", "YAML", "Copy", "Copied"
COMMAND_OF_THESE = "The command that computes these numbers"
YAML_OF_THESE = "The YAML that computes these numbers"

# A walk through one function
SIDE_BY_SIDE = "side by side"
COUNT_HEADS = "{count} heads"
COLUMNS = "columns"
WITH_BIAS = "+ {bias}"
MIXED_BY = "×"
MISTAKES_OF = "The function {name} makes the mistake{several} {names}."
MADE_BY = "Made otherwise by mistake={mistake}: {says}"
MADE_OTHERWISE = "This function makes it otherwise than the definition."
SHOULD_BE = "right: {what}"
NOT_CHANGED_HERE = "Numbers cannot be changed in the page here: {why}."
SHOWN = "Shown: {left_out}; results.npz holds all."
OF_HEADS = "{shown} of {all} heads"
OF_LINES = "{shown} of {all} {lines}"
OF_WINDOW, OF_ROW = "{lines} {first} to {last} of {all}", "the row of {name}, of {all}"
TOO_MANY_FOR_SUMS = "This page carries too many weights to write a sum."
OF_ROWS = "{rows} of {all_rows} rows and {columns} of {all_columns} columns"
COLUMNS_FOR = "{count} for {whom}"
SUM_OF_VALUES = "Each token as a sum of values"
NAN_AS_WEIGHTS = "NaN, as its weights are"
OTHER_VALUES = "+ {rest} of other values"

# A cell of a walk, when somebody asks how it came about
CLICK_A_NUMBER = "Click a number to see how it was computed; the arrow keys move to its neighbours, Escape closes."
CELL_OF_TABLE = "{place} of {table}"
CELL_IS = "{cell} = {sum} = {number}"
CELL_IS_APART = "{cell} = {sum} = {apart}; the table has {number}"
CELL_IS_GIVEN = "{cell} = {number}; what it is made of is not shown here."
REST_OF_MORE = "{rest} of {count} more that are not shown"
REST_OF_KEYS, REST_OF_ELSE = "{rest} of keys that are not shown", "{rest} of what else takes a share"
FUNCTION_OF, C_OF_HEAD = "{function} of {number}", "C of head {number}"
IS_BECAUSE = "{cell} = {number}, because {why}"
SEES_NO_KEY = "this query may see no key, and 0 / 0 counts as 0"
BLIND_ROW = "{gets} where a query may see no key"
BLIND_GETS = "that is what convention={convention} gives a query that may see no key"
NO_SUM = "{number} / 0, which counts as 0"
MAY_NOT_SEE = "this query may not see this key"
IS_MADE_OTHERWISE = "this stage is made otherwise than the definition, as the line above it says"

# Pictures
WEIGHT = "weight"
FLAT = ", flat at {height}"

# Its command
COMMAND_CONTINUES = "The command, which also continues it:"
SAME_EVERYWHERE = "the same everywhere: {settings}"
LEFT_OUT = "{count} combinations left out"

# Its results
RESULTS = "Results"
MEAN = "Means; settings that are the same everywhere are left out. All rows:"
MEAN_OVER_SEEDS = (
    "Means over {seeds} seeds, each ± half of its 95% confidence interval; of fewer than five numbers, the least and "
    "the most instead. Settings that are the same everywhere are left out. All rows:"
)
HELD_TOGETHER = (
    "Points that differ in their seed alone may be computed together, against a reference of arrays with exact sums; "
    "the scalar loops then check one seed of them."
)
REPEAT = "repeat"
NO_RESULT = "No point has a result."
ALL_FAILED = "No point has a result; all that ran failed."

# Where a reader looks closer
ALONG_X, COLOUR, PANELS, NO_SETTING = "along x", "colour", "panels", "none"
MEANS_OVER_SEEDS = "Means over the seeds; bars are 95% intervals, of fewer than five numbers their range."
MEANS_OVER_TOO = (
    "Means over the seeds and over {settings}, without intervals; of fewer than five numbers a bar is their range."
)
AGAINST, LOG_SCALE = "against {setting}", "{setting} (log scale)"
ONE_DOT = "{settings}: {mean} ({count} numbers)"

# Where numbers are smallest and largest, and what settings do, in tables
EXTREMES = "The smallest and the largest"
METRIC, VARIANT_HEAD, SETTINGS = "metric", "variant", "settings"
LARGEST = "largest"
EXTREME_AT = "{which} {metric}: {number}, {variant} at {settings}:"
EFFECTS = "Effects"
SETTING = "setting"
SEEDS = "seeds"
SHARES = "What explains how much"
SHARE = "share"

# What disagrees, and what failed
DISAGREEMENTS = "Disagreements with published results"
AGREE = "{settings}: {tally} agree:"
FAILURES = "Failures"
ALL_WITH = "(all with {shared})"

# Two runs or sweeps side by side
VERSUS = "Side by side"
NO_MAPS = "The page shows no maps of the two runs:"
OTHER_TOKENS = "their tokens differ, so that no weight of the one belongs to a weight of the other."
NEVER_FORMED = "the {which} never formed its weights."
FIRST_ONE, SECOND_ONE = "first", "second"
ONLY_ROUNDING = "No number moved beyond rounding, in {where}."

# The classroom
BY_HAND = "Attention by hand"
KEY_IN_BRACKETS = "(key)"
BY_HAND_KEY = "Attention by hand: the key"
NAME = "Name:"
TOKENS_ARE_COLUMNS, TOKENS_ARE_ROWS = "Tokens are columns.", "Tokens are rows."
WRONG, RIGHT_FROM_WRONG, NOT_A_NUMBER = "wrong", "follows rightly from a wrong number", "not a number"
COUNT_RIGHT, COUNT_WRONG = "{right} of {all} right", "; {count} wrong"
COUNT_FOLLOWS = ", {count} of them from a wrong number"
WHAT_IS_RIGHT, FILL_IN = "What is right", "Fill in"
FORMULA_SIDE, TURNED_SIDE = "{side} = {source} W_{side}", "{side} = W_{side}ᵀ {source}"
ADDED, MEMORY = "added", "memory"
HIDDEN, WRITTEN_HIDDEN = ", −∞ where a token may not look", "written -inf or x"
INTO_HEADS = "cut into heads of {width} columns"
HEADS_SHARE = "{count} heads of {one} with each head of {other}"
LINES_OF_TURNED, IN_EACH_HEAD = "rows", "of each head"
PAIR_TURNED = (
    "then {lines} (a, b) = {pairs}{several} turned: a cos − b sin and a sin + b cos, with the cos and sin of the token"
)
PAIRS_TURNED = (
    "then the pairs of {lines} (a, b) = {pairs}{several} turned: a cos − b sin and a sin + b cos, "
    "with the cos and sin of the token and the pair"
)
STAGE_OF_HEAD = "{stage}, head {number}"
ALL_RIGHT = "all right"
SOME_MISSING = "no number is wrong; some are missing"
NOTHING_FILLED_IN = "nothing is filled in"
POINTS_OF = "{points} of {most} points"
DO_THIS = "What to do instead:"
WRONG_MARK = "✗ wrong: beside it stands what your numbers before it give"
FOLLOWS_MARK, UNREADABLE_MARK = "→ right, though computed from a wrong number", "? cannot be read"
EMPTY_MARK = "– left empty: beside it stands what is right"
CHECKED_AT_ONCE = (
    "Typed numbers are checked at once: green is right, red is wrong, orange follows rightly from a wrong number."
)
EXAM = "Nothing is checked here: save your answers and hand them in."
COUNT_FILLED, COUNT_UNREADABLE = "{count} of {all} filled in", "; {count} cannot be read"
MARKED, MARKED_SHEETS = "marked", "Marked sheets"
BY_BOX = "Points by box"
GRADES = "Grades"
WHICH_MISTAKE = "How often each mistake was made"
MISTAKE, STUDENTS_HEAD, WHAT_IT_IS = "mistake", "students", "what it is"
NO_MISTAKE = "No mistake by name."
STUDENTS = "Students"
