package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dist is what make dist has made.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NEXUS_DIST")
	if dir == "" {
		t.Fatal("NEXUS_DIST names no directory with what make dist has made: run make test-dist")
	}
	return dir
}

// named is the one file in dist that has this name.
func named(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist(t), pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s is %q, %v; want one file", pattern, found, err)
	}
	return found[0]
}

// facts are what a program says that it is.
type facts struct {
	Version, Commit, OS, Arch string
}

// told runs a program for its version.
func told(t *testing.T, program ...string) (f facts) {
	t.Helper()
	out := output(t, exec.CommandContext(t.Context(), program[0], append(program[1:], "version", "--json")...))
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return f
}

// output is what a command prints. If it fails the test fails, with all that it said.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, &stderr)
	}
	return string(out)
}

// entries reads an archive.
func entries(t *testing.T, name string) (heads []*tar.Header, texts map[string][]byte) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var plain io.Reader = bytes.NewReader(text)
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		if plain, err = gzip.NewReader(plain); err != nil {
			t.Fatal(err)
		}
	}
	texts = map[string][]byte{}
	for archive := tar.NewReader(plain); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return heads, texts
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		heads = append(heads, head)
		if texts[head.Name], err = io.ReadAll(archive); err != nil {
			t.Fatalf("%s: %s: %v", name, head.Name, err)
		}
	}
}

// unpacked is a directory with what is in an archive.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	heads, texts := entries(t, name)
	for _, head := range heads {
		to := filepath.Join(dir, filepath.FromSlash(head.Name))
		var err error
		if head.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			err = os.WriteFile(to, texts[head.Name], 0o600)
		}
		err = errors.Join(err, os.Chmod(to, head.FileInfo().Mode()))
		if os.Geteuid() == 0 {
			err = errors.Join(err, os.Lchown(to, head.Uid, head.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The sums are those of the files, and there is one of each kind for each system.
func TestSums(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dist(t), sumsFile))
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		file, err := os.ReadFile(filepath.Join(dist(t), name))
		if got := fmt.Sprintf("%x", sha256.Sum256(file)); err != nil || got != sum {
			t.Errorf("the sum of %s is %s, %v; want %s", name, got, err, sum)
		}
		listed++
	}
	if want := 4 + 2*3; listed != want {
		t.Errorf("%d files are listed, want %d:\n%s", listed, want, text)
	}
}

// What is made elsewhere, by a user with another umask and time zone, is the same.
func TestReproducible(t *testing.T) {
	here := system{runtime.GOOS, runtime.GOARCH}
	name := named(t, "nexus-*-"+here.String()+".tar.gz")
	heads, _ := entries(t, name)
	made := told(t, filepath.Join(unpacked(t, name), heads[0].Name, "bin/nexus"))

	source := filepath.Join(t.TempDir(), "another place")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = "../.."
	for file := range strings.SplitSeq(strings.Trim(output(t, list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(list.Dir, file))
		if errors.Is(err, os.ErrNotExist) { // removed, and not yet in a commit
			continue
		}
		info, staterr := os.Stat(filepath.Join(list.Dir, file))
		to := filepath.Join(source, file)
		if err := errors.Join(err, staterr, os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode()&0o700); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	again := exec.CommandContext(t.Context(), "sh", "-c", `umask 077; exec go run . "$@"`, "sh",
		"-source", source, "-out", out, "-version", made.Version, "-commit", made.Commit, "-time", strconv.FormatInt(heads[0].ModTime.Unix(), 10))
	again.Env = append(os.Environ(), "TZ=Pacific/Auckland", "LC_ALL=C", "USER=somebody")
	output(t, again)
	want, err1 := os.ReadFile(filepath.Join(dist(t), sumsFile))
	got, err2 := os.ReadFile(filepath.Join(out, sumsFile))
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(want, got) {
		t.Errorf("made again: %v\n%s\nwant\n%s", err, got, want)
	}
}

// An archive has everything in one directory, of root and of one time, and the programs of its
// system, which know their version and not where they were built.
func TestArchives(t *testing.T) {
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range systems {
		t.Run(s.String(), func(t *testing.T) {
			name := named(t, "nexus-*-"+s.String()+".tar.gz")
			top := strings.TrimSuffix(filepath.Base(name), ".tar.gz")
			version := strings.TrimSuffix(strings.TrimPrefix(top, "nexus-"), "-"+s.String())
			heads, texts := entries(t, name)
			var before string
			for i, head := range heads {
				if head.Uid != 0 || head.Gid != 0 || !head.ModTime.Equal(heads[0].ModTime) || head.ModTime.Before(time.Unix(1_000_000_000, 0)) || !strings.HasPrefix(head.Name, top+"/") {
					t.Errorf("%s is of %d:%d and %s", head.Name, head.Uid, head.Gid, head.ModTime)
				}
				if entry := strings.TrimSuffix(head.Name, "/"); i > 0 && entry <= before {
					t.Errorf("%s is behind %s", entry, before)
				} else {
					before = entry
				}
			}
			for _, program := range []string{"nexus", "nexus-child", "nexus-rpc", "nexus-cluster"} {
				text := texts[path.Join(top, "bin", program)]
				if err := isFor(text, s); err != nil {
					t.Errorf("%s: %v", program, err)
				}
				if !bytes.Contains(text, []byte(version)) {
					t.Errorf("%s does not have its version %s", program, version)
				}
				if bytes.Contains(text, []byte(source)) || bytes.Contains(text, []byte(os.TempDir()+"/nexus-dist-")) {
					t.Errorf("%s has the path where it was built", program)
				}
				if len(texts[path.Join(top, "share/man/man1", program+".1")]) == 0 {
					t.Errorf("there is no man page of %s", program)
				}
			}
			if _, unit := texts[path.Join(top, "lib/systemd/system/nexus.service")]; unit != (s.os == "linux") {
				t.Errorf("it has a unit for systemd: %v", unit)
			}
		})
	}
}

// isFor reports why a program is not one of a system.
func isFor(text []byte, s system) error {
	if s.os == "darwin" {
		file, err := macho.NewFile(bytes.NewReader(text))
		if err != nil {
			return err
		}
		if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[s.arch]; file.Cpu != want {
			return fmt.Errorf("is for %s", file.Cpu)
		}
		return nil
	}
	file, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[s.arch]; file.Machine != want {
		return fmt.Errorf("is for %s", file.Machine)
	}
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		return fmt.Errorf("needs %q", libraries)
	}
	return nil
}

// An archive runs where it is unpacked, and that of another processor where there is an emulator.
func TestArchiveRuns(t *testing.T) {
	for _, s := range systems {
		if s.os != runtime.GOOS {
			continue
		}
		emulator := ""
		if s.arch != runtime.GOARCH {
			found, err := exec.LookPath(map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[s.arch])
			if err != nil {
				t.Logf("not run: the programs for %s, as there is no emulator here", s)
				continue
			}
			emulator = found
		}
		name := named(t, "nexus-*-"+s.String()+".tar.gz")
		top := filepath.Join(unpacked(t, name), strings.TrimSuffix(filepath.Base(name), ".tar.gz"))
		command := slices.DeleteFunc([]string{emulator, filepath.Join(top, "bin/nexus")}, func(word string) bool { return word == "" })
		if made := told(t, command...); made.OS != s.os || made.Arch != s.arch || !strings.Contains(filepath.Base(name), made.Version) {
			t.Errorf("%s says that it is %+v", name, made)
		}
		if emulator == "" {
			converse(t, filepath.Join(top, "bin"))
		}
	}
}

// converse has the programs in a directory start a server, and an agent that answers.
func converse(t *testing.T, bin string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", talk)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "NEXUS_HOME="+t.TempDir(), freePort(t), "NEXUS3_API_KEY=", "PATH="+bin+":"+os.Getenv("PATH"))
	if said := output(t, cmd); !strings.Contains(said, "Your name is Alice.") {
		t.Errorf("the agent said:\n%s", said)
	}
}

// freePort is the variable by which programs have a server on a port of their own.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "NEXUS_PORT=" + port
}

// talk is what a person does first with the programs on PATH.
const talk = `nexus-rpc create chat; trap 'nexus-rpc shutdown' EXIT
nexus-rpc send chat 'My name is Alice'; nexus-rpc send chat 'What is my name?'
`
