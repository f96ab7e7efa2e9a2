package backup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/backup"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
)

var modified = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var digest = strings.Repeat("0a", 32) // which names an image

// put writes files below dir.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, modified, modified)); err != nil {
			t.Fatal(err)
		}
	}
}

// texts are the files below dir.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			if info.Mode() != fs.ModeDir|0o700 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return nil
		}
		if info.Mode() != 0o600 || !info.ModTime().Equal(modified) {
			t.Errorf("%s has mode %v and is of %v", path, info.Mode(), info.ModTime())
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// segment is one of the records of an agent.
var segment = fmt.Sprintf("%-191s\n", `{"records":1,"since":1,"first":1,"snapshot":192,"account":0,"reserved":0}`)

// makeHome is a home with everything that one may have, and what of it is saved.
func makeHome(t *testing.T) (home string, saved map[string]string) {
	t.Helper()
	home = t.TempDir()
	saved = map[string]string{
		"format.json": `{"format":1}`, "config.schema.json": "{}", "mcp.json": "{}", "NEXUS.md": "Be brief.", "keys.json": "[]", "audit.jsonl": "{}\n", "audit.jsonl.1": "{}\n{}\n",
		"audit-limited.jsonl": "{}\n", "audit-limited.jsonl.3": "{}\n{}\n", "audit-excess.jsonl": "{}\n",
		"plans/p.jsonl": "{}\n", "plans/tasks/0123456789abcdef0123456789abcdef.json": "{}\n", "sessions/a.jsonl": "{\"1\"}\n", "sessions/a.files/" + digest: "PNG",
		"sessions/a.records/00000000000000000001.jsonl": segment,
		"sessions/old.jsonl":                            "{\"1\"}\n", "sessions/old.outcomes": "{}\n", "sessions/old.usage": "{}", // of an earlier version
		"sessions/old.events/00000000000000000001.jsonl": fmt.Sprintf("%-63s\n", `{"events":1,"reserved":7}`),
		"run/signatures": "s", "run/last": "a\n",
	}
	put(t, home, saved)
	put(t, home, map[string]string{
		"server.key": "k", "server-18412.key": "k", "run/lock": "1 2\n", "run/trees/3f58a785c6000000": "{}", "run/temp/.t.jsonl": "{}\n",
		"logs/server-8765.log": "l", "cache/c": "c", "terminal-history.jsonl": "\"h\"\n", "sessions/.lock": "", "sessions/b.outcomes": "of no session\n", "work/notes": "n",
		"sessions/a.files/notes.txt": "n", "sessions/a.records/notes.txt": "n", "sessions/a.records/00000000000000000002.jsonl.new": "n",
		"plans/p.jsonl":    "{}\n{\"not whole yet",
		"sessions/a.jsonl": "{\"1\"}\n{\"",
	})
	config := filepath.Join(t.TempDir(), "config.json")
	saved["config.json"] = `{"a":1}`
	put(t, filepath.Dir(config), map[string]string{"config.json": saved["config.json"]})
	err := errors.Join(
		os.Symlink(config, filepath.Join(home, "config.json")), // as people do who keep it elsewhere
		os.Symlink("/etc/passwd", filepath.Join(home, "sessions", "link.jsonl")),
		os.WriteFile(filepath.Join(home, "sessions", "mis typed.jsonl"), nil, 0o600),
		syscall.Mkfifo(filepath.Join(home, "sessions", "a.files", "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return home, saved
}

func write(t *testing.T, home string, o backup.Options) ([]byte, backup.Report) {
	t.Helper()
	var file bytes.Buffer
	report, err := backup.Write(t.Context(), &file, home, o)
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), report
}

// A configuration that is a link to what is not there, as on a disk that is not mounted, is missed.
func TestConfigurationIsNotThere(t *testing.T) {
	home, _ := makeHome(t)
	path := filepath.Join(home, "config.json")
	if err := errors.Join(os.Remove(path), os.Symlink("/not-mounted/config.json", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Write(t.Context(), io.Discard, home, backup.Options{}); err == nil || !strings.Contains(err.Error(), path+" is a symbolic link to /not-mounted/config.json") {
		t.Errorf("got %v", err)
	}
}

// Of another user's home nothing is saved that is not that user's: a link may lead to what only our user reads. Root alone gives files away: of anybody else the home
// stays the owner's, and all of it is saved.
func TestHomeOfAnother(t *testing.T) {
	owner := os.Geteuid()
	if owner == 0 {
		owner = 12345
	}
	for name, test := range map[string]struct {
		change func(home, ours string) error
		want   string // "" is no error
	}{
		"as it is":                {func(string, string) error { return nil }, ""},
		"what root has put there": {func(home, _ string) error { return os.Chown(filepath.Join(home, "NEXUS.md"), os.Geteuid(), -1) }, ""},
		"a link to root's":        {link("config.json", "NEXUS.md"), "config.json is a link, or in one, to what does not belong to the user whose home this is: remove the link, or run this as its owner (sudo -u '#12345' …)"},
		"root's sessions":         {link("sessions", "sessions"), "is a link, or in one"},
		"root's plans":            {link("plans", "plans"), "is a link, or in one"},
		"root's run":              {link("run", "run"), "run/signatures is a link, or in one"},
	} {
		home, _ := makeHome(t)
		ours, _ := makeHome(t)
		if err := errors.Join(filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, owner, -1), os.Chown(filepath.Join(home, "config.json"), owner, -1)) // a link
		}), test.change(home, ours)); err != nil {
			t.Fatal(err)
		}
		_, err := backup.Write(t.Context(), io.Discard, home, backup.Options{})
		if owner == os.Geteuid() {
			test.want = ""
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// link puts a link to what is ours in the place of something of a home.
func link(name, to string) func(home, ours string) error {
	return func(home, ours string) error {
		path := filepath.Join(home, name)
		return errors.Join(os.RemoveAll(path), os.Symlink(filepath.Join(ours, to), path))
	}
}

func TestRoundTrip(t *testing.T) {
	home, saved := makeHome(t)
	file, report := write(t, home, backup.Options{})
	if report.Sessions != 2 || report.Files != len(saved) || !cmp.Equal(report.LeftOut, []string{"work", "sessions/link.jsonl", "sessions/mis typed.jsonl"}) {
		t.Errorf("saved %+v", report)
	}
	other := filepath.Join(t.TempDir(), "new", "home")
	again, err := backup.Restore(t.Context(), bytes.NewReader(file), other)
	report.LeftOut = nil
	if diff := cmp.Diff(report, again); diff != "" || err != nil {
		t.Errorf("restored %v (-saved +restored):\n%s", err, diff)
	}
	if diff := cmp.Diff(saved, texts(t, other)); diff != "" {
		t.Errorf("the home (-saved +restored):\n%s", diff)
	}

	inUse := &backup.InUseError{}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(file), other); !errors.As(err, &inUse) {
		t.Errorf("over a home: %v", err)
	}
	dangling := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("missing", dangling); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(file), dangling); !errors.As(err, &inUse) || !inUse.Dangling {
		t.Errorf("into a link whose target is missing: %v", err)
	}
	empty := t.TempDir()
	if _, err := backup.Restore(t.Context(), bytes.NewReader(file), empty); err != nil || len(texts(t, empty)) != len(saved) {
		t.Errorf("into an empty directory: %v", err)
	}

	file, _ = write(t, home, backup.Options{NoKeys: true})
	other = filepath.Join(t.TempDir(), "home")
	if _, err := backup.Restore(t.Context(), bytes.NewReader(file), other); err != nil {
		t.Error(err)
	}
	delete(saved, "keys.json")
	delete(saved, "run/signatures")
	if diff := cmp.Diff(saved, texts(t, other)); diff != "" {
		t.Errorf("without keys (-want +got):\n%s", diff)
	}
}

// The home of a machine of a cluster is that machine's once it is restored, too: others may have its agents.
func TestHomeOfAMachine(t *testing.T) {
	home, _ := makeHome(t)
	if err := os.MkdirAll(filepath.Join(home, "cluster", "farm", "b", "agents", "laid"), 0o700); err != nil {
		t.Fatal(err)
	}
	saved, report := write(t, home, backup.Options{})
	if slices.Contains(report.LeftOut, "cluster") {
		t.Errorf("not nexus's: %v", report.LeftOut)
	}
	other := filepath.Join(t.TempDir(), "home")
	if _, err := backup.Restore(t.Context(), bytes.NewReader(saved), other); err != nil {
		t.Fatal(err)
	}
	if cluster, machine := config.Home(other).Machine(); cluster != "farm" || machine != "b" {
		t.Errorf("it is the home of the machine %q of the cluster %q", machine, cluster)
	}
}

// refused restores what is no whole backup, and looks that nothing is left of it.
func refused(t *testing.T, what string, file []byte) error {
	t.Helper()
	parent := t.TempDir()
	_, err := backup.Restore(t.Context(), bytes.NewReader(file), filepath.Join(parent, "home"))
	damaged := &backup.DamagedError{}
	if !errors.As(err, &damaged) {
		t.Errorf("%s: %v", what, err)
	}
	left, failed := os.ReadDir(parent)
	if failed != nil || len(left) > 0 {
		t.Errorf("%s: left %v, %v", what, left, failed)
	}
	return err
}

// What a later program has written is refused as that, before it is read on, and nothing is left of it.
func TestNewer(t *testing.T) {
	const what = `{"format":%d,"version":"v9","created_at":"2026-01-01T00:00:00Z","keys":true}`
	for name, c := range map[string]struct {
		members []entry
		want    string
	}{
		"backup": {
			[]entry{file("nexus-backup.json", fmt.Sprintf(what, 4)), file("of/a later program", "")},
			`nexus-backup.json says that this backup has format 4, as nexus "v9" left it, and this program reads formats up to 3`,
		},
		"home": {
			[]entry{file("nexus-backup.json", fmt.Sprintf(what, 3)), file("format.json", `{"format":2,"version":"v9"}`), file("of/a later program", "")},
			`format.json says that this home has format 2, as nexus "v9" left it, and this program reads formats up to 1`,
		},
	} {
		parent := t.TempDir()
		_, err := backup.Restore(t.Context(), bytes.NewReader(pack(t, c.members)), filepath.Join(parent, "home"))
		if _, newer := errors.AsType[*homeformat.NewerError](err); !newer || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if left, failed := os.ReadDir(parent); failed != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, failed)
		}
	}
}

// A file that the server would not read is not saved.
func TestTooLarge(t *testing.T) {
	home := t.TempDir()
	put(t, home, map[string]string{"config.json": strings.Repeat(" ", 1<<20+1)})
	if _, err := backup.Write(t.Context(), io.Discard, home, backup.Options{}); err == nil || !strings.Contains(err.Error(), "config.json has 1048577 bytes, and may have 1048576") {
		t.Errorf("error %v", err)
	}
}

func gzipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); errors.Join(err, w.Close()) != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// same reports whether two packed files have the same content: one of zeros may
// be packed in several ways.
func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	contents := make([][]byte, 2)
	for i, file := range [][]byte{a, b} {
		r, err := gzip.NewReader(bytes.NewReader(file))
		if err != nil {
			return false
		}
		if contents[i], err = io.ReadAll(r); err != nil {
			return false
		}
	}
	return bytes.Equal(contents[0], contents[1])
}

// What a server took from an agent and could not save is in the backup, also where the
// session's last line is not whole.
func TestNarrowed(t *testing.T) {
	home := t.TempDir()
	const began = `{"type":"session","version":1,"session_id":"s","created_at":"2026-01-02T03:04:05Z"}` + "\n" +
		`{"type":"settings","permissions":{"preset":"trusted"},"granted":{"preset":"trusted"},"at":"2026-01-02T03:04:05Z"}` + "\n"
	put(t, home, map[string]string{"sessions/a.jsonl": began + `{"type":"set`, "sessions/b.jsonl": began, "sessions/a.records/00000000000000000001.jsonl": segment})
	file, _ := write(t, home, backup.Options{Narrowed: map[string]protocol.Permissions{
		"a": {Preset: "sandboxed", BlockedPaths: []string{"/x"}}, "gone": {Preset: "sandboxed"},
	}})
	other := filepath.Join(t.TempDir(), "home")
	if _, err := backup.Restore(t.Context(), bytes.NewReader(file), other); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "sandboxed", "b": "trusted"} {
		saved, err := sessions.New(other, nil).Summary(name)
		if err != nil || saved.Settings.Permissions.Preset != want || saved.Settings.Granted.Preset != want {
			t.Errorf("%s is %+v, %v", name, saved.Settings, err)
		}
	}
	if got := texts(t, other)["sessions/a.records/00000000000000000001.jsonl"]; got != segment {
		t.Errorf("its records are %q", got)
	}
}

func TestDamaged(t *testing.T) {
	home := t.TempDir()
	put(t, home, map[string]string{"sessions/a.jsonl": "{}\n", "config.json": "{}"})
	file, _ := write(t, home, backup.Options{})
	step := max(len(file)/40, 1)
	for n := 0; n < len(file); n += step {
		refused(t, "cut off", file[:n])
	}
	refused(t, "without its last byte", file[:len(file)-1])
	for n := 10; n < len(file); n += step { // after the header of gzip, which has no checksum
		flipped := bytes.Clone(file)
		flipped[n] ^= 0x10
		if !same(t, file, flipped) {
			refused(t, "damaged", flipped)
		}
	}
	packed, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	inside, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	for what, longer := range map[string][]byte{
		"two backups": slices.Concat(file, file), "a byte more": append(bytes.Clone(file), 0), "an empty archive more": slices.Concat(file, gzipped(t, nil)),
		"a block more within": gzipped(t, append(inside, make([]byte, 512)...)),
	} {
		if err := refused(t, what, longer); err == nil || !strings.Contains(err.Error(), "something follows its end") {
			t.Errorf("%s: %v", what, err)
		}
	}
	noHeader := append(bytes.Repeat([]byte("garbage "), 4), make([]byte, 512-32)...) // of a member
	first := inside[:2048]                                                           // the first member: records, its header and its text, each with a header or padding
	for what, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":             {nil, "it is cut off"},
		"no archive":        {[]byte("hello, I am a text and no archive at all"), "it is not packed by gzip"},
		"packed":            {gzipped(t, noHeader), "its content is no tar archive"},
		"after a member":    {gzipped(t, slices.Concat(first, noHeader)), `what follows "nexus-backup.json" in it is no header of a tar archive`},
		"in a member":       {gzipped(t, inside[:1600]), "it is cut off"},
		"the wrong content": {append(bytes.Clone(file[:len(file)-8]), make([]byte, 8)...), "the checksum of gzip is not that of its content"},
	} {
		if err := refused(t, what, c.file); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "archive/tar") {
			t.Errorf("%s: error %v, want %s", what, err, c.want)
		}
	}

	// Interrupted.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	parent := t.TempDir()
	if _, err := backup.Restore(ctx, bytes.NewReader(file), filepath.Join(parent, "home")); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("interrupted: left %v, %v", left, err)
	}
}

// The directory above a home, and an empty one, are no homes.
func TestNoHome(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if _, err := backup.Write(t.Context(), io.Discard, dir, backup.Options{}); err == nil || !strings.Contains(err.Error(), "it is no home of nexus") {
			t.Errorf("error %v", err)
		}
		put(t, dir, map[string]string{"home/sessions/a.jsonl": "{}", "cache/x": "", "run/lock": ""})
	}
}

// An archive that somebody made puts nothing but plain files into the home.
func TestHostileArchives(t *testing.T) {
	what := file("nexus-backup.json", `{"format":2,"version":"x","created_at":"2026-01-01T00:00:00Z","keys":true}`)
	noKeys := file(what.header.Name, strings.Replace(what.text, "true", "false", 1))
	end := file("nexus-backup.end.json", `{"files":1,"bytes":2}`)
	session := file("sessions/a.jsonl", "{}")
	link := func(name, to string, kind byte) entry {
		return entry{header: tar.Header{Name: name, Linkname: to, Typeflag: kind, Mode: 0o777}}
	}
	for name, c := range map[string]struct {
		members []entry
		want    string // of the error; "" if it is restored
	}{
		"whole":             {[]entry{what, session, end}, ""},
		"setuid":            {[]entry{what, {header: tar.Header{Name: "sessions/a.jsonl", Mode: 0o6777}, text: "{}"}, end}, ""},
		"no first member":   {[]entry{session, end}, "it does not begin as one"},
		"format 0":          {[]entry{file("nexus-backup.json", strings.Replace(what.text, "2", "0", 1)), session, end}, "there is no format 0"},
		"a home's format 0": {[]entry{what, file("format.json", `{"format":0}`), end}, "format.json does not say which format the home has: there is no format 0"},
		"no machine":        {[]entry{file(what.header.Name, strings.Replace(what.text, "}", `,"cluster":"..","machine":"x"}`, 1)), session, end}, "it names a machine that can be none"},
		"no last member":    {[]entry{what, session}, "its end is missing"},
		"a file is missing": {[]entry{what, end}, "it has 0 files of 0 bytes, not 1 of 2"},
		"after the end":     {[]entry{what, session, end, file("sessions/b.jsonl", "{}")}, "something follows its end"},
		"twice":             {[]entry{what, session, session, end}, `"sessions/a.jsonl" stands twice in it`},
		"symbolic link":     {[]entry{what, link("sessions/a.jsonl", "/etc/passwd", tar.TypeSymlink), end}, "is no regular file"},
		"hard link":         {[]entry{what, link("sessions/a.jsonl", "/etc/passwd", tar.TypeLink), end}, "is no regular file"},
		"device":            {[]entry{what, link("sessions/a.jsonl", "", tar.TypeChar), end}, "is no regular file"},
		"pipe":              {[]entry{what, link("sessions/a.jsonl", "", tar.TypeFifo), end}, "is no regular file"},
		"directory":         {[]entry{what, link("sessions/", "", tar.TypeDir), end}, "is no regular file"},
		"above":             {[]entry{what, file("../a.jsonl", "{}"), end}, "is no file of a home"},
		"above a directory": {[]entry{what, file("sessions/../../a.jsonl", "{}"), end}, "is no file of a home"},
		"root":              {[]entry{what, file("/etc/passwd", "{}"), end}, "is no file of a home"},
		"a key":             {[]entry{what, file("server.key", "{}"), end}, "is no file of a home"},
		"a record":          {[]entry{what, file("run/trees/3f58a785c6000000", "{}"), end}, "is no file of a home"},
		"a dot":             {[]entry{what, file("sessions/a.files/..", "{}"), end}, "is no file of a home"},
		"no agent's name":   {[]entry{what, file("sessions/a\n.jsonl", "{}"), end}, "is no file of a home"},
		"dots":              {[]entry{what, file("sessions/..a.jsonl", "{}"), end}, "is no file of a home"},
		"a folder's name":   {[]entry{what, file("sessions/a b.files/1.png", "{}"), end}, "is no file of a home"},
		"temporary":         {[]entry{what, file("sessions/.a.jsonl", "{}"), end}, "is no file of a home"},
		"not temporary":     {[]entry{what, file("run/temp/a.jsonl", "{}"), end}, "is no file of a home"},
		"no plan's name":    {[]entry{what, file("plans/..jsonl", "{}"), end}, "is no file of a home"},
		"no image":          {[]entry{what, file("sessions/a.files/1.png", "{}"), end}, "is no file of a home"},
		"an upper-case sum": {[]entry{what, file("sessions/a.files/"+strings.ToUpper(digest), "{}"), end}, "is no file of a home"},
		"hidden":            {[]entry{what, file("run/temp/.t.files/.bashrc", "{}"), end}, "is no file of a home"},
		"earlier format":    {[]entry{file("nexus-backup.json", strings.Replace(what.text, "2", "1", 1)), session, end}, ""},
		"no segment":        {[]entry{what, file("sessions/a.records/1.jsonl", "{}"), end}, "is no file of a home"},
		"a line of names":   {[]entry{what, file("sessions/a.records/00000000000000000001.jsonl\n", "{}"), end}, "is no file of a home"},
		"keys":              {[]entry{noKeys, file("keys.json", "{}"), end}, "keys.json is in it, and it says that it has no keys"},
		"signatures":        {[]entry{noKeys, file("run/signatures", "{}"), end}, "run/signatures is in it, and it says that it has no keys"},
		"large":             {[]entry{what, file("config.json", strings.Repeat(" ", 1<<20+1)), end}, `"config.json" has 1048577 bytes, and may have 1048576`},
		"large keys":        {[]entry{what, file("keys.json", strings.Repeat(" ", 1<<20+1)), end}, `"keys.json" has 1048577 bytes, and may have 1048576`},
		"large servers":     {[]entry{what, file("mcp.json", strings.Repeat(" ", 1<<20+1)), end}, `"mcp.json" has 1048577 bytes, and may have 1048576`},
		"sparse": {[]entry{what, {header: tar.Header{Name: "sessions/a.jsonl", Mode: 0o600, Typeflag: tar.TypeReg, PAXRecords: map[string]string{
			"XNU.sparse.map": "0,2", "XNU.sparse.numblocks": "1", "XNU.sparse.size": "1048576",
		}}, text: "{}"}, file("nexus-backup.end.json", `{"files":1,"bytes":1048576}`)}, `"sessions/a.jsonl" is a sparse file`},
	} {
		t.Run(name, func(t *testing.T) {
			archive := pack(t, c.members)
			if c.want != "" {
				if err := refused(t, name, archive); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			home := filepath.Join(t.TempDir(), "home")
			if _, err := backup.Restore(t.Context(), bytes.NewReader(archive), home); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"sessions/a.jsonl": "{}"}, texts(t, home)); diff != "" {
				t.Errorf("restored (-want +got):\n%s", diff)
			}
		})
	}
}

type entry struct {
	header tar.Header
	text   string
}

func file(name, text string) entry {
	return entry{tar.Header{Name: name, Mode: 0o600, Typeflag: tar.TypeReg}, text}
}

func pack(t *testing.T, members []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		m.header.Size, m.header.ModTime = int64(len(m.text)), modified
		if err := w.WriteHeader(&m.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return gzipped(t, bytes.ReplaceAll(out.Bytes(), []byte("XNU.sparse"), []byte("GNU.sparse"))) // which the writer refuses
}
