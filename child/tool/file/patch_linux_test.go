package file_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
)

// elsewhere is a new directory on another file system than the room's, into which no file can be renamed.
func (r *room) elsewhere() string {
	r.t.Helper()
	device := func(dir string) uint64 {
		var stat unix.Stat_t
		if unix.Stat(dir, &stat) != nil {
			return 0
		}
		return stat.Dev
	}
	for _, dir := range []string{"/dev/shm", "."} {
		if d := device(dir); d != 0 && d != device(r.dir) {
			dir, err := os.MkdirTemp(dir, "nexus-test-")
			r.must(err)
			r.t.Cleanup(func() { r.must(os.RemoveAll(dir)) })
			dir, err = filepath.Abs(dir)
			r.must(err)
			return dir
		}
	}
	r.t.Fatal("TMPDIR, /dev/shm and the sources are on one file system")
	return ""
}

// What fails in the middle leaves all as it was: modes, files that were moved or deleted, and directories.
func TestPatchFailsInTheMiddle(t *testing.T) {
	r := newRoom(t)
	other := r.elsewhere()
	space := file.Space{Cwd: r.dir, AllowedPaths: []string{other}}
	r.open(space)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		r.put(name, name+"\n")
	}
	r.must(os.Chmod(filepath.Join(r.dir, "a"), 0o751))
	before := r.tree()
	same := func() {
		t.Helper()
		if diff := cmp.Diff(before, r.tree()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if info, err := os.Stat(filepath.Join(r.dir, "a")); err != nil || info.Mode().Perm() != 0o751 {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
		if entries, err := os.ReadDir(other); err != nil || len(entries) > 0 {
			t.Errorf("elsewhere: %v, error %v", entries, err)
		}
	}
	r.want("!move e: "+other+"/deep/e is on another file system: copy_file and delete_file do it\nnothing was changed", "apply_patch", "patch",
		marked("*** Update File: a", "-a", "+A", "*** Add File: sub/deep/new", "+x", "*** Delete File: b", "*** Update File: c", "*** Move to: sub/c",
			"*** Update File: d", "*** Move to: d2", "-d", "+D", "*** Update File: e", "*** Move to: "+other+"/deep/e"))
	same()
	if changed, err := file.DeleteThenMove(t.Context(), space, "a", "e", other+"/e"); err == nil || changed != nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
	same()
	// Between file systems an edited file is written and deleted.
	r.want("moved e to "+other+"/e (+1 -1)\n", "apply_patch", "patch", marked("*** Update File: e", "*** Move to: "+other+"/e", "-e", "+E"))
	if got := r.get(other + "/e"); got != "E\n" {
		t.Errorf("e: %q", got)
	}
}

// What cannot be put back is named, and what was in it stays beside it.
func TestPatchThatCannotBeUndone(t *testing.T) {
	r := newRoom(t)
	r.put("a", "old\n")
	path := filepath.Join(r.dir, "a")
	changed, err := file.WriteAndUndo(t.Context(), file.Space{Cwd: r.dir}, "a", "new\n", func() {
		r.must(os.Rename(path, path+"2"))
		r.must(os.Mkdir(path, 0o777))
	})
	kept, _ := filepath.Glob(filepath.Join(r.dir, ".nexus-*"))
	if len(kept) != 1 || r.get(kept[0]) != "old\n" {
		t.Fatalf("kept: %v", kept)
	}
	want := "a could not be put back: file exists: what was in it is in " + filepath.Base(kept[0]) + " beside it"
	if err == nil || err.Error() != want || len(changed) != 1 || changed[0] != path {
		t.Errorf("changed %v, error %v, want %s", changed, err, want)
	}
}

// patchHelper is set where the test is its own program, which patches files until it is killed.
const patchHelper = "NEXUS_PATCH_HELPER"

// Whenever the program is killed, each file of a patch is whole: as before, or as after.
func TestPatchKilled(t *testing.T) {
	const files = 100
	content := func(version string) string { return strings.Repeat(version+"\n", 20) }
	var to [2]strings.Builder
	for way, versions := range [][2]string{{"old", "new"}, {"new", "old"}} {
		to[way].WriteString("*** Begin Patch\n")
		for i := range files {
			fmt.Fprintf(&to[way], "*** Update File: f%d\n", i)
			for range 20 {
				fmt.Fprintf(&to[way], "-%s\n+%s\n", versions[0], versions[1])
			}
		}
		to[way].WriteString("*** End Patch\n")
	}
	if dir := os.Getenv(patchHelper); dir != "" {
		r := &room{t: t, tools: map[string]tool.Tool{}}
		r.open(file.Space{Cwd: dir})
		fmt.Println("begun")
		for way := 0; ; way = 1 - way {
			if _, err := r.tools["apply_patch"].Run(t.Context(), tool.Call{Input: jsontext.Value(`{"patch":` + strconv.Quote(to[way].String()) + `}`)}); err != nil {
				t.Fatal(err)
			}
			fmt.Println("patched")
		}
	}
	times := 10
	if testing.Short() {
		times = 2
	}
	for range times {
		r := newRoom(t)
		for i := range files {
			r.put("f"+strconv.Itoa(i), content("old"))
		}
		helper := exec.Command(os.Args[0], "-test.run=^TestPatchKilled$")
		helper.Env = append(os.Environ(), patchHelper+"="+r.dir)
		out, err := helper.StdoutPipe()
		r.must(err)
		r.must(helper.Start())
		said := bufio.NewScanner(out)
		for range 2 + rand.IntN(3) {
			said.Scan()
		}
		some := filepath.Join(r.dir, "f"+strconv.Itoa(rand.IntN(files)))
		then, err := os.Stat(some)
		r.must(err)
		for t.Context().Err() == nil { // until the next patch has come to it
			if now, err := os.Stat(some); err != nil || !os.SameFile(then, now) {
				break
			}
		}
		r.must(helper.Process.Kill())
		if err := helper.Wait(); err == nil {
			t.Error("it ended by itself")
		}
		versions := map[string]int{}
		for i := range files {
			got := r.get(filepath.Join(r.dir, "f"+strconv.Itoa(i)))
			if versions[got]++; got != content("old") && got != content("new") {
				t.Errorf("f%d has %d bytes: %.20q", i, len(got), got)
			}
		}
		t.Logf("killed with %d files as before and %d as after", versions[content("old")], versions[content("new")])
	}
}
