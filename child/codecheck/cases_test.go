package codecheck_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nexus.internal/child/codecheck"
	"nexus.internal/protocol"
)

// checkers are those that the cases were written for, by language.
var checkers = map[string]struct{ program, name string }{
	"go": {"go", "go vet"}, "rust": {"rustc", "rustc"}, "c": {"gcc", "gcc"}, "cpp": {"g++", "g++"}, "javascript": {"node", "node --check"},
	"typescript": {"tsc", "tsc"}, "python": {"python3", "python"}, "shell": {"bash", "bash -n"}, "json": {"", "json"},
	"tsx": {"tsc", "tsc"}, "jsx": {"tsc", "tsc"}, "sql": {"python3", "sqlite"},
}

// What is right is called so, and what is not is found where it is. want are the
// diagnostics: line, severity and a part of the words; "" is none.
func TestCases(t *testing.T) {
	cache := goCache(t)
	const absent = "what depends on it was not checked"
	for _, tt := range []struct{ name, language, code, want string }{
		{"C", "go", "package main\n\n// #include <stdlib.h>\nimport \"C\"\n\nfunc main() { C.free(nil) }\n", "4 warning " + absent},
		{"C, and bad grammar", "go", "package main\n\nimport \"C\"\n\nfunc main() { C.free( }\n", "3 warning " + absent + "|5 error expected operand"},
		{"an import of elsewhere", "go", "package main\n\nimport \"github.com/a/b\"\n\nfunc main() { b.F() }\n", "3 warning " + absent},
		{"an import of its own module", "go", "package main\n\nimport \"app/internal/x\"\n\nfunc main() { x.F() }\n", "3 warning " + absent},
		{"an import that nobody has", "go", "package main\n\nimport \"net/htp\"\n\nfunc main() { htp.F() }\n", "3 error cannot find package"},
		{"a file that it embeds", "go", "package p\n\nimport _ \"embed\"\n\n//go:embed x\nvar s string\n", "5 warning " + absent},
		{"a library", "go", "package lib\n\nfunc F() int { return 1 }\n", ""},
		{"a test", "go", "package lib_test\n\nimport \"testing\"\n\nfunc TestF(*testing.T) {}\n", ""},
		{"BOM, CRLF, no last newline", "go", "\uFEFFpackage p\r\n\r\nfunc F() {}", ""},
		{"another constraint", "go", "//go:build ignore\n\npackage main\n\nfunc main() { x }\n", "5 error undefined: x"},
		{"empty", "go", "", "1 error expected 'package'"},
		{"an expression", "go", "a.b(c)[1] + 2", ""},
		{"statements", "go", "// Says it.\nx := f()\nfor range x {\n\tprintln(x)\n}", ""},
		{"declarations", "go", "/* A type. */ type t struct{ a int }\n\nfunc (t) f() {}\n", ""},
		{"a call of a function literal", "go", "func() { f() }()", ""},
		{"BOM, CRLF, and no package", "go", "\uFEFFx := 1\r\nf(x)\r\n", ""},
		{"a fault in the first statement", "go", "x := = 1", "1 error expected operand"},
		{"a fault in statements", "go", "x := 1\nif x {\n", "2 error expected"},
		{"a fault in declarations", "go", "type t struct{}\n\nfunc f( {}\n", "3 error expected"},
		{"the end of a function in statements", "go", "f()\n}\n\nfunc g() {\nf()", "4 error expected"},
		{"a program", "rust", "fn help() {}\nfn main() { help(); }\n", ""},
		{"main in a comment", "rust", "/*\nfn main() {}\n*/\npub fn f() {}\n", ""},
		{"BOM, CRLF, no last newline", "rust", "\uFEFFfn main() {\r\n    let _x = 1;\r\n}", ""},
		{"a crate of elsewhere", "rust", "use serde::Serialize;\nfn main() {}\n", "1 warning " + absent},
		{"a module of another file", "rust", "mod foo;\nfn main() {\n  foo::f();\n}\n", "1 warning " + absent},
		{"unused", "rust", "fn main() {\n  let x = 1;\n}\n", "2 warning unused variable"},
		{"notes of one fault", "cpp", "void f(int a);\nvoid f(char* b);\nint main() { f(1.5, 2); }\n", "3 error no matching function"},
		{"a fault in a template", "cpp", "template<class T> void f(T t) {\n  t.g();\n}\nint main() { f(1); }\n", "2 error request for member"},
		{"BOM, CRLF, no last newline", "c", "\uFEFFint main(void)\r\n{\r\n return 0;\r\n}", ""},
		{"a header that is not here", "c", "#include \"nope.h\"\n", "1 error nope.h"},
		{"another name by #line", "c", "#line 50 \"other.c\"\nint main(void){ return x; }\n", "0 error other.c: "},
		{"a module", "javascript", "import {\n a\n} from './x.js';\nexport{a};\n", ""},
		{"a module by its await", "javascript", "const x = await fetch('y');\n", ""},
		{"a module by import.meta", "javascript", "console.log(import.meta.url);\n", ""},
		{"a script with a module's words", "javascript", "const s = `\nexport default 5\n`;\nwith (s) { length }\n", ""},
		{"a fault in a module", "javascript", "import a from 'a';\nlet b = = 1;\n", "2 error Unexpected token"},
		{"BOM, CRLF, no last newline", "javascript", "\uFEFFconst a = 1;\r\nlet b = 2", ""},
		{"a name of the browser's", "typescript", "let name = 'x';\n", ""},
		{"a module by its await", "typescript", "const r = await fetch('x');\n", ""},
		{"modules that are not here", "typescript", "import fs from 'fs';\nfs.f();\nlet b: number = 'x';\n", "1 warning " + absent + "|3 error Type 'string'"},
		{"elements", "tsx", "import { a } from \"a\";\nexport const b = (p: { n: number }) => <C {...p}>{a}</C>;\nconst C = (p: { n: number }) => p.n;\n", "1 warning " + absent},
		{"elements of a library", "tsx", "const a = 1;\nexport const b = <div>{a}</div>;\n", "2 warning " + absent},
		{"a wrong attribute", "tsx", "const C = (p: { n: number }) => p.n;\n\nexport const c = <C n=\"no\" />;\n", "3 error Type 'string'"},
		{"elements", "jsx", "import React from \"react\";\nexport const a = ({ b, ...c }) => <div {...c}><b>{b}</b></div>;\n", ""},
		{"an open element", "jsx", "\nexport const a = <div><b></div>;\n", "2 error JSX element 'b'"},
		{"a type", "jsx", "let a: number = 1;\n", "1 error Type annotations"},
		{"several", "sql", "-- All.\nCREATE TABLE t (a INT, b TEXT DEFAULT ';'); /* ; */\nCREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; SELECT 2; END;\n", "3 warning " + absent},
		{"a table of elsewhere, and parameters", "sql", "SELECT ?, :x;\nINSERT INTO t VALUES (1)", "2 warning " + absent},
		{"a word", "sql", "SELECT 1;\nSELECT a FORM\n  t WHERE;\n", "3 error near \"t\": syntax error"},
		{"a column of nothing", "sql", "SELECT a;", "1 error no such column: a"},
		{"cut off", "sql", "SELECT (1,\n2", "2 error incomplete input"},
		{"what would do something", "sql", "ATTACH 'nexus-attached' AS x;\nVACUUM INTO 'nexus-attached';\n", ""},
		{"BOM, CRLF, nothing", "sql", "\uFEFF-- nothing\r\n", ""},
		{"mixed tabs", "python", "if True:\n\tx = 1\n        y = 2\n", "3 error inconsistent use of tabs"},
		{"tabs", "python", "if True:\n\tx = 1\n\ty = 2\n", ""},
		{"another encoding", "python", "# -*- coding: latin-1 -*-\nx = 'é'\n", ""},
		{"an encoding that nobody knows", "python", "# -*- coding: nope -*-\nx = 1\n", "1 error unknown encoding: nope"},
		{"BOM, CRLF, no last newline", "python", "\uFEFFdef f():\r\n    return 1", ""},
		{"return outside", "python", "x = 1\nreturn 5\n", "2 error 'return' outside function"},
		{"the same argument twice", "python", "def f(a, a): pass\n", "1 error duplicate argument"},
		{"a NUL", "python", "x = 1\ny\x00\n", "2 error null bytes"},
		{"BOM, no last newline", "shell", "\uFEFFecho x", ""},
		{"CRLF, which it does not take", "shell", "if true; then\r\n echo x\r\nfi\r\n", "4 error syntax error"},
		{"cut off", "json", "{\n\"a\": [1,", "2 error unexpected EOF"},
		{"empty", "json", "", "1 error there is no value"},
		{"BOM", "json", "\uFEFF{}", "1 error invalid character"},
	} {
		t.Run(tt.language+"/"+tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, err := codecheck.Check(ctx, protocol.CodeCheck{Code: tt.code, Language: tt.language, Cache: cache}, os.Environ())
			by := checkers[tt.language]
			if _, none := exec.LookPath(by.program); by.program != "" && none != nil {
				if failure, ok := errors.AsType[*protocol.CodeError](err); err != nil && (!ok || failure.Kind != "missing") {
					t.Errorf("without %s: %v", by.program, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Checker.Name != by.name && got.Checker.Name != "gofmt" {
				return // one that is more thorough, with words of its own
			}
			var want []string
			if tt.want != "" {
				want = strings.Split(tt.want, "|")
			}
			if got.Valid == strings.Contains(tt.want, " error ") || len(got.Diagnostics) < len(want) || want == nil && len(got.Diagnostics) > 0 {
				t.Fatalf("got %+v, want %q", got, tt.want)
			}
			for i, one := range want {
				d := got.Diagnostics[i]
				at, words, _ := strings.Cut(one, " ")
				kind, words, _ := strings.Cut(words, " ")
				if fmt.Sprint(d.Line) != at || d.Severity != kind || !strings.Contains(d.Message, words) {
					t.Errorf("got %+v, want %q", d, one)
				}
			}
		})
	}
}
