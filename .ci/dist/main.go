package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// system is an operating system and a processor, as Go calls them.
type system struct{ os, arch string }

func (s system) String() string { return s.os + "-" + s.arch }

// systems are those that something is made for.
var systems = []system{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// release is what is packed.
type release struct {
	source, out     string    // directories
	work            string    // for what is packed; removed at the end
	version, commit string    // as the programs say them
	at              time.Time // of every file
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	r := release{}
	flag.StringVar(&r.source, "source", "../..", "`DIR` with the source")
	flag.StringVar(&r.out, "out", "../../dist", "`DIR` for what is made; what make dist left there before goes")
	flag.StringVar(&r.version, "version", "dev", "version of the programs")
	flag.StringVar(&r.commit, "commit", "", "commit of the source")
	seconds := flag.Int64("time", 0, "time of every file, in `SECONDS` since 1970")
	flag.Parse()
	r.at = time.Unix(*seconds, 0).UTC()
	for _, dir := range []*string{&r.source, &r.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if r.work, err = os.MkdirTemp("", "nexus-dist-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := r.clear(); err != nil {
		return err
	}
	var made []string
	for _, s := range systems {
		files, err := r.pack(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		for _, file := range files {
			fmt.Println(filepath.Join(filepath.Base(r.out), file))
		}
		made = append(made, files...)
	}
	return r.sums(made)
}

// sumsFile names what was made, as sha256sum(1) does.
const sumsFile = "SHA256SUMS"

// clear makes the directory, and removes what its list of sums names: nothing of another version
// is left, and no file that is somebody else's goes.
func (r release) clear() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.out, sumsFile))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && filepath.Base(name) == name {
			_ = os.Remove(filepath.Join(r.out, name))
		}
	}
	return os.Remove(filepath.Join(r.out, sumsFile))
}

// pack makes all that there is for a system, and returns the names of the files.
func (r release) pack(ctx context.Context, s system) (files []string, err error) {
	if err := r.build(ctx, s); err != nil {
		return nil, err
	}
	name := "nexus-" + r.version + "-" + s.String()
	local, err := r.install(ctx, s, "/usr/local")
	if err != nil {
		return nil, err
	}
	err = r.file(name+".tar.gz", func(w io.Writer) error { return archive(w, name, local.below("usr/local"), r.at) })
	if err != nil || s.os != "linux" {
		return []string{name + ".tar.gz"}, err
	}
	installed, err := r.install(ctx, s, "/usr")
	if err != nil {
		return nil, err
	}
	files = []string{name + ".tar.gz", "nexus-" + r.version + "-image-" + s.String() + ".tar"}
	if err := r.file(files[1], func(w io.Writer) error { return r.image(w, installed, s) }); err != nil {
		return nil, err
	}
	for _, kind := range []string{"deb", "rpm"} {
		file, err := r.packageOf(kind, installed, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		files = append(files, file)
	}
	return files, nil
}

// bin is where the programs for a system are built.
func (r release) bin(s system) string { return filepath.Join(r.work, "bin", s.String()) }

// build builds the programs for a system, and before the first one those that run here.
func (r release) build(ctx context.Context, s system) error {
	here := system{runtime.GOOS, runtime.GOARCH}
	wanted := []system{s}
	if s != here {
		wanted = append(wanted, here)
	}
	for _, one := range wanted {
		if _, err := os.Stat(r.bin(one)); err == nil {
			continue
		}
		if err := r.make(ctx, one, "build", "BIN="+r.bin(one), "PROGRAMS=$(PRODUCTS)"); err != nil {
			return err
		}
	}
	return nil
}

// install has make install what was built, and returns what that is.
func (r release) install(ctx context.Context, s system, prefix string) (tree, error) {
	stage := filepath.Join(r.work, "stage", s.String(), strings.ReplaceAll(prefix, "/", "-"))
	units := ""
	if s.os == "linux" {
		units = "yes"
	}
	err := r.make(ctx, s, "install", "DESTDIR="+stage, "PREFIX="+prefix, "BIN="+r.bin(s), "RUNS="+r.bin(system{runtime.GOOS, runtime.GOARCH}), "SYSTEMD="+units)
	if err != nil {
		return nil, err
	}
	return readTree(stage)
}

// make runs make in the source for a system. Variables of a make that has started this one
// have no say.
func (r release) make(ctx context.Context, s system, args ...string) error {
	cmd := exec.CommandContext(ctx, "make", append(args, "VERSION="+r.version, "COMMIT="+r.commit)...)
	cmd.Dir = r.source
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "MAKE") || strings.HasPrefix(pair, "MFLAGS")
	}), "GOOS="+s.os, "GOARCH="+s.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// file writes a file into the directory of what is made.
func (r release) file(name string, write func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// sums writes the sums of what was made.
func (r release) sums(made []string) error {
	slices.Sort(made)
	var text strings.Builder
	for _, name := range made {
		file, err := os.Open(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sum.Sum(nil), name)
	}
	return os.WriteFile(filepath.Join(r.out, sumsFile), []byte(text.String()), 0o644)
}
