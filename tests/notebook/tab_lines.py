"""Lines to press Tab in: ordinary Python and IPython, and lines that only resemble nbdata's."""

from __future__ import annotations

__all__ = ["LINES", "SETTING", "split"]

#: Run before; the lines use its names.
SETTING = """\
import os, sys, json, collections, pathlib
number, text, truth = 5, "text", True
table = {"alpha": 1, "beta": {"gamma": 2}, "a b": 3, 7: 4, b"raw": 5}
numbers = [1, 2, 3]
größe, переменная = 1, 2
pull_count = copy_of = nbdata_like = 1
class Thing:
    first = 1
    def method(self, wide=1, *, width=2):
        return self
    @property
    def loud(self):
        raise RuntimeError("a property was evaluated")
thing = Thing()
"""

# A ‸ marks the cursor; without one it is at the end. A | separates lines.
_ATTRIBUTES = """
os.pa|os.path.|os.path.isab|os.path.nothing|sys.std|sys.stdout.wri|json.dum|thing.|thing.m|thing.first.
thing.method().|thing.loud.|thing.nothing.|text.upp|text.upper().low|"abc".|'abc'.jo|[].app|{}.it|(1).b|1.
1.5.is|numbers.|numbers[0].|table.|table.ke|collections.Ord|collections.OrderedDict.|os.environ.|Thing.
Thing().|number.|number.bit|truth.|None.|lambda: os.|[x for x in os.pa|(os.pa|os.path.join(os.|print(os.pa
x=os.pa|x = os.pa|x == os.pa|not os.pa|os . pa|os.\\|os..|.|..|...|thing.__|thing._|os.path.__na
Thing.method.__|int.|type.|object.|super().|__name__.
"""
_NAMES = """
pri|print|x = |x = o|x=|x = nu|num|number|numbe|tab|Th|thi|gr|grö|größ|пере|пер|z_nothing|_|__|___|_i|In|Ou
In[|Out[|exi|qui|im|import|import |import o|import os.|import os.pa|import os.path as |import sys, o
import collections.ab|import nothing.|from|from |from o|from os |from os i|from os import pa
from os.path import jo|from . import|from collections.abc import It|from nbdata_nothing import |import qq
from qqmodule import u|import nbdata_|from json import *|for|for |for x i|for x in |for x in nu|whi|while tr
if nu|if number == |eli|els|def|def f|def f(|def f(a=nu|cla|class A(Th|ret|lam|lambda |lambda x: nu|with
with op|with open(|try|exc|except Val|except ValueError as |rais|raise Val|asse|assert nu|del nu|global nu
yie|asy|await|await thi|pas|bre|match |match nu|case |type |@pro|@|print(|print(nu|print(number, |print(sep
print(number, se|thing.method(|thing.method(wi|thing.method(wide=1, wid|sorted(numbers, ke|open("x", mo|int(
int(te|f(|f(nu|isinstance(number, i|number + |number+nu|number if |number if tr|[nu|[number for nu|{nu
{"a": nu|{nu for|(nu|-nu|~nu|not nu|*nu|**ta|number; nu|number;|ab|Val|ValueErr|dic|Dec|NotImpl|True|Fals
Non|__imp|__bui|pull_|pull|copy_|copy|pack|nbdata_l|du|ls|push|quot|tra
"""
_STRINGS = """
"da|'da|"data/|'data/o|"data/two|'data/two w|open("da|open('data/|open("data.|"./da|"../|"~/da|'~/|"/us
'/usr/b|"dä|"nothing/|"script|"scr|'.hi|"|'|\"\"\"|\"\"\"da|r"da|rb"da|b"da|f"da|u'da|"da" + "da
"data/one.txt" |x = "da|pathlib.Path("da|f"{|f"{nu|f"{number|f"{number.|f"{os.pa|f"{number:|f"{number} {te
f'{table["al|f"{number!|f"text {{nu|f"{thing.m|F'{nu|"text {nu|"%s" % nu|"{}".for|"a" "da|print("da
print("da", nu|("da|["da|{"da|# da|# os.pa|x = 1 # nu|number # te|table["|table['|table[|table["al|table['be
table["beta"]["|table["beta"]["ga|table["a |table[b"|table[7|table["nothing|table["alpha"]|table["al‸"]
table['‸']|table.get("al|os.environ["PA|os.environ["|os.environ['HO|{"k": 1}["|numbers[|numbers[nu
numbers[0:nu|numbers["
"""
_UNICODE = """
\\alp|\\alpha|\\|\\\\|\\bet|x\\alpha|\\GREEK|\\GREEK SMALL LETTER ALP|\\N|α|\\α|é|ñ|日本|日|\\日|größe.|größe.bi
переменная.|"日|"é|x_\\gam|thing.\\alpha|print(\\alpha|\\nothing_known|\\u03|é = |x = é|🙂|"🙂|🙂.|number🙂|ﬁ|x² |
ⅷ
"""
_MAGICS = """
%|%%|%t|%ti|%tim|%timeit|%timeit |%timeit -|%timeit --|%timeit -n|%timeit -n1 |%timeit -n1 nu|%timeit nu
%timeit os.pa|%%ti|%%time|%%timeit|%%timeit -|%%time |%%time nu|%%cap|%%capture|%%capture |%%capture o
%%capture --no|%%bash|%%bash |%%bash --|%%writefile |%%writefile da|%%w|%lo|%load_e|%load_ext |%load_ext nb
%reload_ext |%unload_ext |%run |%run scr|%run da|%cd |%cd da|%cd ~/|%pw|%who|%who |%whos|%who i|%env |
%env PA|%env PATH=|%config|%config |%config IPC|%config IPCompleter.|%config IPCompleter.us|%colors |%xmode |
%xmode V|%his|%history -|%hist|%rec|%res|%reset |%reset -|%reset_selective |%alias |%alias l|%unalias |
%unalias l|%matplotlib |%matplotlib i|%pylab|%ls|%ls |%ls d|%ls da|%ls data/|%ls ./|%ls ~/|%ls nu|%ls "da
%ls 'data/|%ls data/ |%ls data/one.txt d|%lsm|%lsmagic|%ll|%ll |%ll da|%lx|%ldir|x = %ls |x = %ls da|%ls $te
%ls {te|%ls *|%ls da*|x = %timeit -|x = %timeit nu|x = %|x = %t|x = %%|x = %pw|x = %env |number = %who
%pullx|%pullx |%pullx da|%pullx --|%%pullx |%pulls|%pu|%pus|%push_x |%pack_ |%copy2 |%nb|%nbdatax |
%nbdata_pull |% pull |% pull da|%%pull |%%pull da|%%push --|%%nbdata pull |%%copy d|%%ls da|%%quota -
%% pull|%cp |%cp da|%mv |%mv da|%rm |%rm da|%mkdir |%cat da|%less |%more da|%man |%pycat|pull |pull da
nbdata.pu|nbdata.pull(|nbdata pull |x = pull |y.pull |"%pull |'%pull da|# %pull da|print %pull da|x % pull
x %pull |x%pull da|5 %copy nu|number %nu|number % nu|number%te|"%s" %te|% nu|%%%|%%%pull |%%% |%-|%.|%os.pa
%number|%%number|%?|%t?|%timeit?|%pdoc os.|%pinfo os.pa|%psource Th
"""
_SHELL = """
!|!l|!ls|!ls |!ls da|!ls data/|!ls ~/|!ls ~/da|!ls "da|!ls nu|!cat scr|!ec|!echo $nu|!echo {nu|!pull |
!nbdata pull |!nbdata pu|!!|!!ls |!!ls da|x = !|x = !ls |x = !ls da|files = !ls ~/|!%pull |!./|!/us|!git |
!python scr|!python -|!pip |! ls da|!ls;ls da|!ls | gre|%sx |%sx ls da|%system ls|ls |ls da|ls data/|ls -
cd |cd da|cat da|pwd|cp da|run scr|timeit nu|timeit -|time |time nu|who |env PA|load_ext |history -|os.pa?
os.path?|os.path??|?os|?os.pa|??os|?|??|*os*?|os.*?|pri?|number?|?num|thing.m?|Thing?|%ls?|?%ls|?%ti|%time??
x = os?|,f a|;f a|/f a|,pri
"""
# Cells and long lines.
_CELLS = [
    "",
    " ",
    "\n",
    "import os\nos.pa",
    "os.pa‸th.join",
    "os.‸path",
    "‸os.path",
    "o‸s.path",
    "os.path‸.join('a')",
    "pri‸(number)",
    "x = nu‸ + 1",
    "def f(a):\n    nu",
    "def f(a):\n    a.",
    "def f(local_name):\n    loc",
    "class A:\n    def m(self):\n        self.",
    "class A:\n    x = 1\n    def m(self):\n        return self.x.",
    "for i in numbers:\n    pri",
    "if True:\n    os.pa‸\nelse:\n    pass",
    "x = (\n    nu",
    "x = [\n    number,\n    te",
    "table[\n    'al",
    '"""\nda',
    '"""\nos.pa',
    '"""\n%pullx da',
    "'''\n%ls da",
    "new_name = 1\nnew_",
    "from os import path\npath.jo",
    "with open('data.csv') as f:\n    f.re",
    "%%time\nos.pa",
    "%%time‸\npass",
    "%%ti‸\npass",
    "%%timeit -n1\nnu",
    "%%capture out\nos.pa",
    "%%bash\nls da",
    "%%bash\necho $HO",
    "%%writefile x\nnu",
    "%%html\n<b",
    "%%cache_streamx s\nnu",
    "x = 1\n%ti",
    "x = 1\n%ls da",
    "x = 1\n%timeit nu",
    "for i in numbers:\n    %ti",
    "for i in numbers:\n    %ls da",
    "!ls da‸\nos.pa",
    "!ls\nos.pa",
    "os.pa‸\n%pull data there",
    "%pull data there\nos.pa",
    "%pu‸ data",
    "%pull‸ data there",
    "%‸pull data there",
    "‸%pull data there",
    "%pull data there\n‸",
    "größe = 1\ngrö",
    "x = '日本語'; nu",
    "x = '🙂🙂'; os.pa",
    "'🙂' + te‸ + '🙂'",
    "x\r\nos.pa",
    "os.pa\\\n",
    "x = number + \\\n    nu",
    "@pro‸\ndef f(): pass",
    "async def f():\n    await thi",
    "lambda x:\\\n x.",
    "x" * 3000,
    "x." * 300,
    "(" * 200 + "nu",
    " " * 2000 + "nu",
    "number + " * 300 + "nu",
    "'" + "d" * 3000,
    "%" + "x" * 3000,
    "%timeit " + "x" * 3000,
    "\n" * 500 + "nu",
    "x = 1\n" * 500 + "os.pa",
    "os.pa‸" + "\nx = 1" * 500,
]

_BLOCKS = (_ATTRIBUTES, _NAMES, _STRINGS, _UNICODE, _MAGICS, _SHELL)

#: Every line once.
LINES = list(
    dict.fromkeys(
        _CELLS + [line for block in _BLOCKS for line in block.strip("\n").replace("\n", "|").split("|")]
    )
)


def split(line: str) -> tuple[str, int]:
    """Return the text of a line, and the place of the cursor in it."""
    before, mark, after = line.partition("‸")
    return before + after, len(before) if mark else len(line)
