package progress_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"go.uber.org/goleak"

	"nexus.internal/cmd/internal/progress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLine(t *testing.T) {
	for _, test := range []struct {
		done, total int
		what        string
		columns     int
		want        string
	}{
		{0, 8, "", 80, "[--------------------] 0 of 8 tasks, 1m2s"},
		{3, 8, "test by a", 80, "[#######-------------] 3 of 8 tasks, 1m2s: test by a"},
		{8, 8, "", 80, "[####################] 8 of 8 tasks, 1m2s"},
		{9, 8, "", 80, "[####################] 9 of 8 tasks, 1m2s"},
		{0, 0, "", 80, "[####################] 0 of 0 tasks, 1m2s"},
		{3, 8, "äöü", 51, "[#######-------------] 3 of 8 tasks, 1m2s: äöü"},
		{3, 8, "äöü", 45, "[#######-------------] 3 of 8 tasks, 1m2s: äö"},
		{3, 8, "", 0, ""},
	} {
		if got := progress.Line(test.done, test.total, "tasks", test.what, 62*time.Second+time.Millisecond, test.columns); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}

// What is printed beside a bar stands above it, also where it comes in parts of lines; and nothing of the bar is
// left at its end.
func TestBeside(t *testing.T) {
	terminal, ours, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var raw bytes.Buffer
	read := make(chan struct{})
	go func() { // ends with the terminal
		defer close(read)
		_, _ = raw.ReadFrom(terminal)
	}()
	bar := progress.Begin(ours, "xterm", 2, "files")
	out := bar.Beside(ours)
	for _, text := range []string{"one ", "line\n", "another\n"} {
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	bar.At(1, "the second")
	bar.End()
	ours.Close()
	<-read
	screen := vt.NewEmulator(60, 5)
	_, _ = screen.Write(raw.Bytes())
	if got := strings.TrimSpace(screen.String()); !strings.HasPrefix(got, "one line") || !strings.HasSuffix(got, "another") || strings.Contains(got, "files") {
		t.Errorf("the screen has\n%s\nof %q", got, raw.String())
	}
	if !strings.Contains(raw.String(), "1 of 2 files, 0s: the second") {
		t.Errorf("no bar was shown: %q", raw.String())
	}
}

// Where nothing can be erased nothing is shown.
func TestNoTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	terminal, ours, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer ours.Close()
	for name, bar := range map[string]*progress.Bar{
		"file": progress.Begin(file, "xterm", 2, "files"), "buffer": progress.Begin(&bytes.Buffer{}, "xterm", 2, "files"),
		"dumb": progress.Begin(ours, "dumb", 2, "files"), "unknown": progress.Begin(ours, "", 2, "files"),
	} {
		if bar != nil || bar.Beside(file) != file {
			t.Errorf("%s: a bar is shown", name)
		}
		bar.At(1, "nothing")
		bar.End()
	}
}
