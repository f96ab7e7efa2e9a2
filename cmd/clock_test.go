package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// wallClock are the ways to a time that jumps with the machine's clock. What
// decides anything is a time.Now with its monotonic reading, which differences,
// deadlines and timers use; it is lost only by these, or in a file.
var wallClock = map[string]bool{
	"Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true, "ModTime": true, "Parse": true, "ParseInLocation": true,
}

// wallClockUses are those that a jump cannot hurt.
var wallClockUses = map[string]string{
	"child/snapshot/state.go ModTime":                 "tells one state of a file from another",
	"child/snapshot/state.go UnixNano":                "the same",
	"bridge/client/prove.go Unix":                     "a deadline that is always over",
	"bridge/plan/list.go ModTime":                     "when a record was written last, which is told",
	"bridge/plan/list.go UnixMicro":                   "the same",
	"bridge/plan/record.go ModTime":                   "the order in which old records go",
	"bridge/task/own.go ModTime":                      "which results to prune",
	"bridge/methods/sessions.go UnixMilli":            "shown",
	"bridge/client/keys.go Unix":                      "when a request is signed, which the server compares with its own clock",
	"bridge/httpd/signature.go UnixMicro":             "a signature says when it was made, and its window is of that clock",
	"bridge/replay/file.go UnixMicro":                 "until when a signature counts: its window is of that clock",
	"bridge/sessions/import.go Parse":                 "recorded",
	"cmd/nexus/doctor_home.go ModTime":                "whether the clock jumped back is what is looked for",
	"cmd/internal/cli/print.go Parse":                 "shown",
	"cmd/internal/cli/saved.go UnixMilli":             "shown",
	"cmd/internal/terminal/lobby.go UnixMilli":        "shown",
	"cmd/internal/acpserve/session.go UnixMilli":      "shown",
	"cmd/internal/sessionlog/session.go ModTime":      "shown, and how old a log is, in days",
	"bridge/sessions/snapshot.go ModTime":             "what a restored file is given",
	"cmd/internal/backup/write.go ModTime":            "what a restored file is given",
	"protocol/safefile/safefile.go ModTime":           "what a copy is given",
	"bridge/sessions/directory.go ModTime":            "shown, and the order of a list",
	"bridge/sessions/list.go ModTime":                 "shown, and compared with itself: whether a file was written to",
	"cmd/internal/chaos/server_linux.go UnixNano":     "a name",
	"cmd/internal/telemetry/encode.go UnixNano":       "shown: when a span began and ended",
	"child/journal/expire.go ModTime":                 "whether an unnamed session that nobody holds is 30 days old",
	"child/mcp/stdiotransport.go Unix":                "a deadline that is always over",
	"child/serve.go Unix":                             "a deadline that is always over",
	"child/tool/file/edit.go ModTime":                 "compared with itself: whether a file was changed",
	"child/tool/shell/whole.go ModTime":               "the order in which old outputs go",
	"child/toolenv/home.go ModTime":                   "the order in which old caches go",
	"child/toolenv/spill.go ModTime":                  "the order in which old directories go",
	"protocol/strict/strict.go Parse":                 "whether a text is a time",
	"supervisor/cluster/mirror/shipped.go ModTime":    "tells one state of a file from another",
	"supervisor/cluster/replicated/notes.go ModTime":  "the same",
	"supervisor/cluster/replicated/notes.go UnixNano": "the same",
	"supervisor/history.go UnixMicro":                 "a first number; where the clock went back, resumption says that there may be a gap",
}

func TestNoDecisionByTheWallClock(t *testing.T) {
	unused := map[string]bool{}
	for use := range wallClockUses {
		unused[use] = true
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel("..", path) // it is below
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "fixtures" || rel == "cmd/nexus-bench" || strings.HasPrefix(d.Name(), ".") && rel != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !wallClock[sel.Sel.Name] {
				return true
			}
			name, ok := sel.X.(*ast.Ident)
			if strings.HasPrefix(sel.Sel.Name, "Parse") && (!ok || name.Name != "time") {
				return true // of something else
			}
			use := rel + " " + sel.Sel.Name
			if wallClockUses[use] == "" {
				t.Errorf("%s: %s is of the wall clock, which may jump", fset.Position(sel.Pos()), sel.Sel.Name)
			}
			delete(unused, use)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for use := range unused {
		t.Errorf("%s is allowed and not used", use)
	}
}
