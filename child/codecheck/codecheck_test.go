package codecheck_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/codecheck"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for a checker on a busy machine; go compiles what is imported.
const patience = 2 * time.Minute

// samples are code that is right, which would never end if it ran, and code that
// is wrong in its third line.
var samples = []struct {
	language, right, wrong string
	programs               []string
}{
	{"go", "package main\n\nfunc main() {\n\tfor {\n\t}\n}\n", "package main\n\nfunc main() { x := }\n", []string{"go", "gofmt"}},
	{"python", "while True:\n    pass\n", "while True:\n    pass\ndef f(:\n", []string{"ruff", "python3"}},
	{"javascript", "for (;;) setTimeout(Date, 1);\n", "let a = 1;\n\nlet = = 2;\n", []string{"eslint", "node"}},
	{"typescript", "for (;;) {}\n", "let a = 1;\n\nlet b: number = 'x';\n", []string{"tsc"}},
	{"shell", "while :; do :; done\n", "a=1\n\n)\n", []string{"shellcheck", "bash", "sh"}},
	{"c", "int main(void) { for (;;) {} }\n", "int main(void)\n{\n  return x;\n}\n", []string{"gcc", "clang"}},
	{"cpp", "int main() { for (;;) {} }\n", "int main()\n{\n  return x;\n}\n", []string{"g++", "clang++"}},
	{"rust", "pub fn f() { loop {} }\n", "pub fn f() {\n\n  x\n}\n", []string{"rustc"}},
	{"tsx", "export const a = (p: { n: number }) => p.n;\nfor (;;) {}\n", "const a = 1;\n\nconst b: number = 'x';\n", []string{"tsc"}},
	{"jsx", "for (;;) setTimeout(Date, 1);\n", "const a = 1;\n\nconst b = = 2;\n", []string{"tsc", "eslint"}},
	{"sql", "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n FROM a;\n", "SELECT 1;\n\nSELEC 2;\n", []string{"python3"}},
	{"json", `{"a": [1, 2]}`, "{\n\"a\": 1,\n\"a\": 2}", nil},
}

// goCache is where go keeps what it compiled for us, or a directory of the test's.
func goCache(t *testing.T) string {
	if out, err := exec.Command("go", "env", "GOCACHE").Output(); err == nil {
		if real, err := filepath.EvalSymlinks(strings.TrimSpace(string(out))); err == nil {
			return real
		}
	}
	return t.TempDir()
}

// A checker whose cache cannot be made, or not be written, does without.
func TestNoCache(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		return // TestLanguages says so
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", file) // go would keep it there, too

	// Nobody may write the last of these.
	for _, cache := range []string{"", filepath.Join(file, "cache"), "/proc"} {
		t.Setenv("TMPDIR", t.TempDir())
		r := protocol.CodeCheck{Code: "package p\n\nvar x int = \"\"\n", Language: "go", Rules: []string{}, Cache: cache}
		got, err := codecheck.Check(t.Context(), r, os.Environ())
		if err != nil || got.Checker.Name != "go vet" || len(got.Diagnostics) != 1 || !strings.Contains(got.Diagnostics[0].Message, "cannot use") {
			t.Errorf("with cache %q: %+v, %v", cache, got, err)
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Each language is checked by what the machine has; where it has nothing, the
// answer names what would be needed.
func TestLanguages(t *testing.T) {
	cache := goCache(t)
	t.Setenv("TMPDIR", t.TempDir()) // nobody else's
	for _, s := range samples {
		t.Run(s.language, func(t *testing.T) {
			there := s.programs == nil
			for _, program := range s.programs {
				_, err := exec.LookPath(program)
				there = there || err == nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			ask := func(code string) (protocol.CodeResult, error) {
				return codecheck.Check(ctx, protocol.CodeCheck{Code: code, Language: s.language, Rules: []string{}, Cache: cache}, os.Environ())
			}
			right, err := ask(s.right)
			if !there {
				failure, ok := errors.AsType[*protocol.CodeError](err)
				if !ok || failure.Kind != "missing" || !strings.Contains(failure.Message, s.programs[0]) {
					t.Errorf("without a checker: %+v, %v", right, err)
				}
				return
			}
			if err != nil || !right.Valid || len(right.Diagnostics) > 0 || right.Checker.Name == "" || right.Checker.Version == "" {
				t.Errorf("right: got %+v, %v", right, err)
			}
			wrong, err := ask(s.wrong)
			if err != nil || wrong.Valid || len(wrong.Diagnostics) == 0 {
				t.Fatalf("wrong: got %+v, %v", wrong, err)
			}
			if d := wrong.Diagnostics[0]; d.Line != 3 || d.Severity != "error" || d.Message == "" {
				t.Errorf("wrong: got %+v, want an error in line 3", d)
			}
		})
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "nexus-check-*")) // the pattern is well-formed
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// gofmt does not say its version: that of its Go tree is told, and none beside another gofmt.
func TestVersionOfGofmt(t *testing.T) {
	gofmt, err := exec.LookPath("gofmt")
	if err != nil {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		gofmt = filepath.Join(strings.TrimSpace(string(root)), "bin", "gofmt")
	}
	dir := t.TempDir()
	if err := os.Symlink(gofmt, filepath.Join(dir, "gofmt")); err != nil {
		t.Fatal(err)
	}
	got, err := codecheck.Check(t.Context(), protocol.CodeCheck{Code: "package p\n\nvar x = := 1\n", Language: "go"}, []string{"PATH=" + dir})
	if err != nil || got.Valid || got.Checker.Name != "gofmt" || !strings.HasPrefix(got.Checker.Version, "go1.") {
		t.Errorf("got %+v, %v", got, err)
	}
	alone := filepath.Join(t.TempDir(), "bin")
	if err := os.Mkdir(alone, 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec " + gofmt + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(alone, "gofmt"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err = codecheck.Check(t.Context(), protocol.CodeCheck{Code: "package p\n", Language: "go"}, []string{"PATH=" + alone})
	if err != nil || !got.Valid || got.Checker.Version != "" {
		t.Errorf("without a Go tree: %+v, %v", got, err)
	}
}

// A checker must not show what the code names: files of the server's user.
func TestConfined(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.h")
	if err := os.WriteFile(secret, []byte("#error hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result, err := codecheck.Check(ctx, protocol.CodeCheck{Code: `#include "` + secret + `"` + "\n", Language: "c"}, os.Environ())
	if failure, ok := errors.AsType[*protocol.CodeError](err); ok && failure.Kind == "missing" {
		if !strings.Contains(failure.Message, "gcc or clang") {
			t.Errorf("got %v", failure)
		}
		return
	}
	text, _ := json.Marshal(result) // of strings and numbers
	if err != nil || result.Valid || strings.Contains(string(text), "hunter2") {
		t.Errorf("got %s, %v", text, err)
	}
}

// reader is a checker that shows what it can read of the files that the code names.
const reader = `#!/bin/sh
for last; do :; done
[ -f "$last" ] || exit 0
n=0
while read -r path; do
	n=$((n+1))
	read -r text < "$path" && echo "$last:$n:1: error: read $text"
done < "$last"
`

// A checker reads its own installation, and of what lies beside that nothing: once that of
// ~/bin had all of the home, that of ~/.cargo/bin the keys of registries, and one that
// lies in a home itself all homes.
func TestInstallation(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(top, "homes", "me")
	for _, name := range []string{
		"me/notes", "me/.ssh/id", "me/src/secret.go", "me/.cargo/credentials.toml", "me/.cargo/lib/library", "me/bin/data", "me/lib/library", "me/.rustup/settings.toml",
		"me/.rustup/tmp", "me/.pyenv/versions/3/library", "me/node_modules/other/library", "me/go/src/secret.go", "me/go/bin/x", "other/notes", "other/lib/secret", "me/lib/nexus/keys.json", "me/lib/nexus/cache/kept",
	} {
		path := filepath.Join(top, "homes", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(top, "links"), 0o700), os.Symlink(filepath.Join(home, "bin", "python3"), filepath.Join(top, "links", "python3"))); err != nil {
		t.Fatal(err)
	}
	const versions = "me/.rustup/settings.toml me/.pyenv/versions/3/library"
	for _, tt := range []struct{ name, program, path, want string }{
		{"in the home's bin", "me/bin", "homes/me/bin", "me/bin/data me/lib/library " + versions},
		{"by a link", "me/bin", "links", "me/bin/data me/lib/library " + versions},
		{"of cargo", "me/.cargo/bin", "homes/me/.cargo/bin", "me/.cargo/lib/library " + versions},
		{"of npm", "me/node_modules/.bin", "homes/me/node_modules/.bin", "me/node_modules/other/library " + versions},
		{"of Go's user", "me/go/bin", "homes/me/go/bin", "me/go/bin/x " + versions},
		{"in the home itself", "me", "homes/me", versions},
		{"beside its home", "other/bin", "homes/other/bin", "other/lib/secret " + versions},
	} {
		t.Run(tt.name, func(t *testing.T) {
			program := filepath.Join(top, "homes", tt.program, "python3")
			if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o700), os.WriteFile(program, []byte(reader), 0o700)); err != nil {
				t.Fatal(err)
			}
			var paths []string
			err := filepath.WalkDir(filepath.Join(top, "homes"), func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && d.Name() != "python3" {
					paths = append(paths, path)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			environ := []string{"PATH=" + filepath.Join(top, tt.path), "HOME=" + home, "NEXUS_HOME=" + filepath.Join(home, "lib", "nexus")}
			code := strings.Join(append(paths, "/etc/shadow", "/etc/gshadow", "/root/.bashrc", "/proc/1/environ"), "\n") + "\n"
			got, err := codecheck.Check(t.Context(), protocol.CodeCheck{Code: code, Language: "python"}, environ)
			if err != nil {
				t.Fatal(err)
			}
			read := []string{}
			for _, d := range got.Diagnostics {
				read = append(read, strings.TrimPrefix(d.Message, "read "))
			}
			want := strings.Fields(tt.want)
			slices.Sort(want)
			slices.Sort(read)
			if diff := cmp.Diff(want, read); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

// A version may stand below other words, as shellcheck's does.
func TestVersionLine(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && printf 'ShellCheck - shell script analysis tool\\nversion: 0.11.0\\nlicense: GPL 3\\n'\nexit 0\n"
	if err := os.WriteFile(filepath.Join(bin, "shellcheck"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := codecheck.Check(t.Context(), protocol.CodeCheck{Code: "x", Language: "sh"}, []string{"PATH=" + bin})
	if err != nil || got.Checker.Name != "shellcheck" || got.Checker.Version != "version: 0.11.0" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A checker that does not work says nothing of the code: a shim that may not start its
// program made good code invalid.
func TestBrokenCheckers(t *testing.T) {
	bin, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, language, program, script, want string }{
		{"a shim", "python", "python3", "exec ./nowhere", "python (" + bin + "/python3) does not work, exit status 127: "},
		{"without its program's rights", "python", "python3", "exec /usr", "does not work, exit status 126: "},
		{"at its version", "c", "gcc", "echo no licence; exit 3", "gcc (" + bin + "/gcc) does not work, exit status 3: no licence"},
		{"at the check", "rust", "rustc", `[ "$1" = --version ] || exec ./nowhere`, "does not work, exit status 127: "},
		{"without a version", "go", "gofmt", "exec ./nowhere", "does not work, exit status 127: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(bin, tt.program)
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			got, err := codecheck.Check(t.Context(), protocol.CodeCheck{Code: "x", Language: tt.language}, []string{"PATH=" + bin})
			failure, ok := errors.AsType[*protocol.CodeError](err)
			if !ok || failure.Kind != protocol.CheckerFailed || !strings.Contains(failure.Message, tt.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// What the machine lacks and what nobody knows is said as it is.
func TestFailures(t *testing.T) {
	empty := []string{"PATH=" + t.TempDir()}
	for _, tt := range []struct{ language, kind, message string }{
		{"go", "missing", "no checker for go is on this machine: install go or gofmt"},
		{"TypeScript", "missing", "install tsc"},
		{"cobol", "language", `"cobol" is none of c, cpp, go, javascript, json, jsx, python, rust, shell, sql, tsx, typescript, yaml`},
		{"yml", "missing", "install nexus"},
	} {
		_, err := codecheck.Check(t.Context(), protocol.CodeCheck{Language: tt.language}, empty)
		failure, ok := errors.AsType[*protocol.CodeError](err)
		if !ok || string(failure.Kind) != tt.kind || !strings.Contains(failure.Message, tt.message) {
			t.Errorf("%s: got %v", tt.language, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := codecheck.Check(ctx, protocol.CodeCheck{Language: "shell"}, os.Environ()); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// The words of checkers that this machine may not have, as they write them.
func TestLines(t *testing.T) {
	text := strings.Join([]string{
		"# command-line-arguments",
		"vet: ./f:3:2: undefined: x",
		"f:1:8: F401 [*] `os` imported but unused",
		"f:2:1: warning: Double quote this. [SC2086]",
		"/tmp/x/f:4:5: fatal error: no such thing",
		"f:5:7: warning: unused variable 'x' [-Wunused-variable]",
		"f:6:7: note: declared here",
		"f:7:3: error[E0425]: cannot find value `x`: not found",
		"f(8,5): error TS2322: Type 'string' is not assignable.",
		"f: line 9: syntax error near unexpected token `)'",
		"f: 10: Syntax error: \")\" unexpected",
		"other.h:1:1: error: elsewhere",
		"1 error generated.",
	}, "\n")
	want := []protocol.CodeDiagnostic{
		{Line: 3, Column: 2, Severity: "error", Message: "undefined: x"},
		{Line: 1, Column: 8, Severity: "error", Rule: "F401", Message: "[*] `os` imported but unused"},
		{Line: 2, Column: 1, Severity: "warning", Rule: "SC2086", Message: "Double quote this."},
		{Line: 4, Column: 5, Severity: "error", Message: "no such thing"},
		{Line: 5, Column: 7, Severity: "warning", Rule: "-Wunused-variable", Message: "unused variable 'x'"},
		{Line: 7, Column: 3, Severity: "error", Rule: "E0425", Message: "cannot find value `x`: not found"},
		{Line: 8, Column: 5, Severity: "error", Rule: "TS2322", Message: "Type 'string' is not assignable."},
		{Line: 9, Severity: "error", Message: "syntax error near unexpected token `)'"},
		{Line: 10, Severity: "error", Message: "Syntax error: \")\" unexpected"},
	}
	if diff := cmp.Diff(want, codecheck.Lines(text, "f")); diff != "" {
		t.Error(diff)
	}
}

func TestServe(t *testing.T) {
	var out strings.Builder
	in := strings.NewReader(`{"code":"{","language":"json","rules":["x"]}`)
	if err := codecheck.Serve(t.Context(), in, &out, nil); err != nil {
		t.Fatal(err)
	}
	if want := `"unchecked_rules":["x"]`; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), `"valid":false`) {
		t.Errorf("got %s", out.String())
	}
	if err := codecheck.Serve(t.Context(), strings.NewReader(`{"code":5}`), &out, nil); err == nil {
		t.Error("a bad request is taken")
	}
}
