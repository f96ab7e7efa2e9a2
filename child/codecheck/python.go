package codecheck

// compilePython compiles a file, which runs nothing of it, and says what is wrong
// as worded wants it.
const compilePython = `import sys, warnings
name = sys.argv[1]
text = open(name, "rb").read()
sys.stdout.reconfigure(errors="replace")
def say(line, column, severity, words):
    print("%s:%d:%d: %s: %s" % (name, max(line or 1, 1), max(column or 0, 0), severity, " ".join(str(words).split())))
warnings.simplefilter("always")
warnings.showwarning = lambda words, kind, file, line, *more: say(line, 0, "warning", words)
try:
    compile(text, name, "exec", dont_inherit=True)
except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as e:
    line = getattr(e, "lineno", 0) or 1 + text[:text.find(b"\0") + 1].count(b"\n")
    say(line, getattr(e, "offset", 0), "error", getattr(e, "msg", "") or str(e) or type(e).__name__)
    sys.exit(1)
`

// prepareSQL has SQLite prepare each statement, which runs none: EXPLAIN lists what it would
// do. A fault is where its statement is, or the one place in that which SQLite names.
const prepareSQL = `import re, sqlite3, sys
name = sys.argv[1]
text = open(name, encoding="utf-8-sig", errors="replace", newline="").read()
sys.stdout.reconfigure(errors="replace")
failed = False
db = sqlite3.connect(":memory:", isolation_level=None)
ignored = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$)|;)*", re.S)
def check(start, end):
    global failed
    start = ignored.match(text, start, end).end()
    statement = text[start:end]
    if not statement:
        return
    try:
        if "\0" in statement:
            raise sqlite3.OperationalError("the statement has a NUL")
        explained = re.match(r"explain\b", statement, re.I)
        db.execute(statement if explained else "EXPLAIN " + statement)
    except sqlite3.Error as e:
        words = " ".join(str(e).split())
        if "binding" in words:
            return # a parameter, which has no value here
        near = re.match(r'near "(.+)": ', words)
        at = start
        if words == "incomplete input":
            at = end
        elif near and statement.count(near[1]) == 1:
            at = start + statement.index(near[1])
        before = text[:at]
        print("%s:%d:%d: error: %s" % (name, before.count("\n") + 1, at - before.rfind("\n"), words))
        failed = True
start, end = 0, text.find(";")
while end >= 0:
    if sqlite3.complete_statement(text[start:end + 1]):
        check(start, end + 1)
        start = end + 1
    end = text.find(";", end + 1)
check(start, len(text.rstrip()))
sys.exit(failed)
`
