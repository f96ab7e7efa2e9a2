package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// onFilesystem makes p run in a mount namespace of its own, with a tmpfs of
// those options at dir. It reports whether this machine lets us do that.
func onFilesystem(t *testing.T, p *process, dir, options string) bool {
	t.Helper()
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-rm"
	}
	if out, err := exec.Command("unshare", flags, "mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
		t.Logf("no filesystem of our own can be mounted here: %v %s", err, out)
		return false
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Path = unshare
	p.cmd.Args = append([]string{
		"unshare", flags, "sh", "-c", fmt.Sprintf(`mount -t tmpfs -o %s none '%s' && exec "$0" "$@"`, options, dir),
	}, append([]string{os.Args[0]}, p.cmd.Args[1:]...)...)
	p.cmd.Env = append(p.cmd.Env, "PATH="+os.Getenv("PATH"))
	return true
}

// A disk without room fails the turn, and says so. Nothing that was there is
// lost, the child lives on, and once there is room again everything is saved,
// also what was said meanwhile.
func TestTheDiskIsFull(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, p *process, dir string) (full, mend func(session string) error, ok bool){
		"no space left": func(t *testing.T, p *process, dir string) (full, mend func(string) error, ok bool) {
			if !onFilesystem(t, p, dir, "size=256k") {
				return nil, nil, false
			}
			full = func(session string) error {
				f, err := os.Create(filepath.Join(filepath.Dir(session), "ballast"))
				if err != nil {
					return err
				}
				defer f.Close()
				for err == nil {
					_, err = f.Write(make([]byte, 4096))
				}
				if !errors.Is(err, syscall.ENOSPC) {
					return err
				}
				return nil
			}
			mend = func(session string) error { return os.Remove(filepath.Join(filepath.Dir(session), "ballast")) }
			return full, mend, true
		},
		"file too large": func(_ *testing.T, p *process, _ string) (full, mend func(string) error, ok bool) {
			limit := func(bytes uint64) error {
				return unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil)
			}
			full = func(session string) error {
				info, err := os.Stat(session)
				if err != nil {
					return err
				}
				return limit(uint64(info.Size()) + 100) // so that a record is torn
			}
			return full, func(string) error { return limit(unix.RLIM_INFINITY) }, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := command(t, t.TempDir(), nil, "--session=s", "--session-dir="+dir, "--system=brief")
			full, mend, ok := fill(t, p, dir)
			if !ok {
				return
			}
			p.start()
			session := filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "root", dir, "s.jsonl")
			state := func() *transcript.State {
				t.Helper()
				data, err := os.ReadFile(session)
				if err != nil {
					t.Fatal(err)
				}
				state, good, err := transcript.Parse(bytes.NewReader(data))
				if err != nil || good != int64(len(data)) {
					t.Fatalf("%d of %d bytes are sound, %v", good, len(data), err)
				}
				return state
			}
			prompt := func(id, text string) { p.send(`{"type":"prompt","id":"` + id + `","message":"echo ` + text + `"}`) }

			prompt("1", "one")
			p.want("id", "1")
			if err := full(session); err != nil {
				t.Fatal(err)
			}
			prompt("2", strings.Repeat("two ", 30_000))
			if frame := p.want("type", "error"); !strings.Contains(frame.Get("message").String(), name) || !strings.HasPrefix(frame.Get("message").String(), "save session: ") {
				t.Errorf("got %.300s", frame.Raw)
			}
			if frame := p.want("type", "response"); frame.Get("id").String() != "2" || frame.Get("ok").Bool() {
				t.Errorf("got %.300s", frame.Raw)
			}
			if got := state(); len(got.Messages) < 2 || got.Messages[1].Content != "one" {
				t.Errorf("the file has %+v", got.Messages)
			}
			prompt("3", "three") // it fails at once
			if frame := p.want("type", "response"); frame.Get("id").String() != "3" || frame.Get("ok").Bool() {
				t.Errorf("got %.300s", frame.Raw)
			}
			p.send(`{"type":"set_model","id":"m","model":"offline"}`)
			if frame := p.want("id", "m"); frame.Get("ok").Bool() {
				t.Errorf("got %.300s", frame.Raw)
			}
			if err := mend(session); err != nil {
				t.Fatal(err)
			}
			prompt("4", "four")
			if frame := p.want("type", "response"); frame.Get("id").String() != "4" || !frame.Get("ok").Bool() {
				t.Errorf("got %.300s", frame.Raw)
			}
			var turns []string
			for _, m := range state().Messages {
				turns = append(turns, m.TurnID+string(m.Role[0]))
			}
			if got := strings.Join(turns, " "); !strings.HasPrefix(got, "1u 1a 2u") || !strings.HasSuffix(got, "4u 4a") {
				t.Errorf("the file has %s", got)
			}
			p.send(`{"type":"shutdown"}`)
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d; stderr: %s", status, p.stderr.String())
			}
		})
	}
}

// A session that cannot be begun or gone on with is refused before ready, with
// the reason, and is left as it is.
func TestSessionsThatAreRefused(t *testing.T) {
	const header = `{"type":"session","version":1,"session_id":"a","created_at":"2026-01-02T03:04:05Z"}` + "\n"
	tests := []struct {
		name string
		data string
		mode os.FileMode
		want string // on stderr
	}{
		{"damaged", header + "{]\n" + header, 0o600, "line 2: "},
		{"of a later version", strings.Replace(header, ":1,", ":2,", 1), 0o600, "layout version 2; this program reads up to 1"},
		{"without a header", `{"type":"reset","session_id":"a","at":"2026-01-02T03:04:05Z"}` + "\n{}\n", 0o600, "the header is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "s.jsonl")
			if err := os.WriteFile(path, []byte(tt.data), tt.mode); err != nil {
				t.Fatal(err)
			}
			if got := refusedAs(t, command(t, t.TempDir(), nil, "--continue=s", "--session-dir="+dir), protocol.ExitSessionDamaged); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, without %q", got, tt.want)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.data {
				t.Errorf("the file is %q, %v", got, err)
			}
		})
	}
	t.Run("in a directory that is only for reading", func(t *testing.T) {
		dir := t.TempDir()
		p := command(t, t.TempDir(), nil, "--session=s", "--session-dir="+dir)
		want := "read-only file system"
		if os.Geteuid() != 0 { // root is not kept out by modes
			want = "permission denied"
			if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
		} else if !onFilesystem(t, p, dir, "ro") {
			return
		}
		if got := refused(t, p); !strings.Contains(got, "open session: ") || !strings.Contains(got, want) {
			t.Errorf("got %s, without %q", got, want)
		}
	})
}
