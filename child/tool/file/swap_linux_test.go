package file_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
)

// swapTime is how long links are swapped: NEXUS_SWAP_SECONDS, or 2 s.
func swapTime(t *testing.T) time.Duration {
	text := os.Getenv("NEXUS_SWAP_SECONDS")
	if text == "" {
		return 2 * time.Second
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("NEXUS_SWAP_SECONDS: %v", err)
	}
	return time.Duration(seconds) * time.Second
}

// While somebody swaps the working directory itself for a link, no file of another directory is read.
func TestSwappedTop(t *testing.T) {
	r := newRoom(t)
	dir, link := filepath.Join(r.dir, "dir"), filepath.Join(r.dir, "link")
	r.must(os.Mkdir(dir, 0o700))
	r.must(os.WriteFile(filepath.Join(dir, "f"), []byte("inside"), 0o600))
	r.must(os.WriteFile(filepath.Join(r.outside, "f"), []byte("SECRET"), 0o600))
	r.must(os.Symlink(r.outside, link))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	end := time.Now().Add(swapTime(t) / 2)
	for time.Now().Before(end) {
		f, _, err := file.Open(file.Space{Cwd: dir}, "f")
		if err != nil {
			continue
		}
		if text, err := io.ReadAll(f); string(text) != "inside" {
			t.Errorf("read %q, %v", text, err)
			break
		}
		f.Close()
	}
	close(stop)
	swapping.Wait()
}

// While somebody swaps directories and files for symbolic links that lead out,
// or to what is blocked, no tool reads, lists, finds or changes what is there. None waits
// for the other end of a named pipe.
func TestSwappedLinks(t *testing.T) {
	r := newRoom(t)
	blocked := filepath.Join(r.dir, "blocked")
	for _, dir := range []string{r.dir + "/real/d", blocked + "/d", r.outside + "/d"} {
		r.must(os.MkdirAll(dir, 0o777))
		content := "SECRET"
		if strings.HasPrefix(dir, r.dir+"/real") {
			content = "inside"
		}
		for _, name := range []string{"f", "d/f", "only-" + content} {
			r.must(os.WriteFile(filepath.Join(filepath.Dir(dir), name), []byte(content), 0o666))
		}
	}
	// dir and file are now themselves, now links; their partners are the other.
	r.must(os.Rename(r.dir+"/real", r.dir+"/dir"))
	r.put("file", "inside")
	for name, target := range map[string]string{
		"dir1": "../outside", "dir2": "blocked", "file1": "../outside/f", "file2": "blocked/f", "dir3": r.outside, "file3": blocked + "/f",
	} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	for _, name := range []string{"dir4", "file4"} {
		r.must(unix.Mkfifo(filepath.Join(r.dir, name), 0o666))
	}
	space := file.Space{Cwd: r.dir, Checker: checker(func(path, _ string, _ bool) error {
		if path == blocked || strings.HasPrefix(path, blocked+"/") {
			return errors.New("out of bounds")
		}
		return nil
	})}
	r.open(space)

	stop := make(chan struct{})
	time.AfterFunc(swapTime(t), func() { close(stop) })
	var swaps, tries, reached, refused, escapes atomic.Int64
	running := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; running(); i++ {
			for _, name := range []string{"dir", "file"} {
				one, other := filepath.Join(r.dir, name), filepath.Join(r.dir, name+strconv.Itoa(i/2%4+1))
				if err := unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, unix.ENOENT) {
					t.Error(err)
					return
				}
				swaps.Add(1)
			}
		}
	})
	try := func(result string, err error) {
		tries.Add(1)
		switch {
		case strings.Contains(result, "SECRET"):
			if escapes.Add(1) == 1 {
				t.Errorf("escaped: %q", result)
			}
		case err != nil:
			refused.Add(1)
		default:
			reached.Add(1)
		}
	}
	calls := []struct{ name, input string }{
		{"read_file", `{"path":"dir/f"}`},
		{"read_file", `{"path":"dir/d/f"}`},
		{"read_file", `{"path":"file"}`},
		{"list_directory", `{"path":"dir"}`},
		{"glob", `{"pattern":"**","path":"dir"}`},
		{"search_text", `{"pattern":"SECRE.","path":"dir"}`},
		{"search_text", `{"pattern":"SECRE."}`},
		{"write_file", `{"path":"dir/f","content":"inside"}`},
		{"write_file", `{"path":"dir/new/f","content":"inside"}`},
		{"write_file", `{"path":"file","content":"inside"}`},
		{"copy_file", `{"from":"dir/f","to":"copied","overwrite":true}`},
		{"read_file", `{"path":"copied"}`},
		{"copy_file", `{"from":"file","to":"dir/d/copy"}`},
		{"move_file", `{"from":"dir/d/copy","to":"dir/moved","overwrite":true}`},
		{"delete_file", `{"path":"dir/moved"}`},
		{"move_file", `{"from":"dir/f","to":"stolen","overwrite":true}`},
		{"read_file", `{"path":"stolen"}`},
		{"write_file", `{"path":"dir/f","content":"inside"}`},
		{"delete_file", `{"path":"dir/f"}`},
		{"write_file", `{"path":"dir/f","content":"inside"}`},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Update File: dir/d/f\n-inside\n+inside\n+x\n*** Add File: dir/patched\n+x\n*** Update File: file\n-SECRET\n+x\n*** End Patch"}`},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Update File: dir/d/f\n inside\n+x\n*** Add File: dir/deep/patched\n+x\n*** End Patch"}`},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Update File: dir/d/f\n inside\n-x\n*** Delete File: dir/deep/patched\n*** End Patch"}`},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Update File: dir/f\n*** Move to: patched\n*** Add File: dir/f\n+inside\n*** End Patch"}`},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Update File: dir/f\n*** Move to: patched\n*** End Patch"}`},
		{"read_file", `{"path":"patched"}`},
		{"delete_file", `{"path":"patched"}`},
		{"write_file", `{"path":"dir/f","content":"inside"}`},
		{"edit_file", `{"path":"dir/d/f","old_text":"i","new_text":"I"}`},
		{"edit_file", `{"path":"dir/d/f","old_text":"I","new_text":"i"}`},
		{"edit_file", `{"path":"file","old_text":"SECRET","new_text":"x"}`},
	}
	for range 2 {
		wg.Go(func() {
			for running() {
				for _, c := range calls {
					result, err := r.tools[c.name].Run(context.Background(), tool.Call{Input: jsontext.Value(c.input)})
					text := result.Text
					if err == nil && strings.HasPrefix(c.input, `{"pattern":"SECRE.`) && strings.HasPrefix(text, "[no line matches") {
						text = "" // it names no line
					}
					if err != nil && strings.Contains(err.Error(), "SECRET") && !strings.Contains(c.input, `SECRET`) {
						text += err.Error()
					}
					try(text, err)
				}
				f, _, err := file.Open(space, "dir/f")
				if err != nil {
					try("", err)
					continue
				}
				content, err := io.ReadAll(f)
				f.Close()
				try(string(content), err)
			}
		})
	}
	wg.Wait()
	for _, dir := range []string{r.outside, blocked} {
		for _, name := range []string{"f", "d/f"} {
			if got := r.get(filepath.Join(dir, name)); got != "SECRET" {
				t.Errorf("%s/%s holds %q", dir, name, got)
			}
		}
		entries, err := os.ReadDir(dir)
		r.must(err)
		for _, e := range entries {
			if !strings.Contains(" f d secret.txt only-SECRET ", " "+e.Name()+" ") {
				t.Errorf("%s has %s now", dir, e.Name())
			}
		}
	}
	t.Logf("%d swaps, %d tries: %d reached what is inside, %d were refused, %d escaped",
		swaps.Load(), tries.Load(), reached.Load(), refused.Load(), escapes.Load())
	if swaps.Load() < 100 || reached.Load() == 0 || refused.Load() == 0 {
		t.Error("that was no race")
	}
}
