package toolenv

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
)

const (
	// defaultHomeBytes is how much a home holds where nobody says it.
	defaultHomeBytes = 4 << 30
	// maxHomeEntries and maxHomeDepth bound what a measurement looks at: what is beyond is removed.
	maxHomeEntries = 1_000_000
	maxHomeDepth   = 128
	// measureShare is how many times longer than a measurement programs run before the next.
	measureShare = 4
	// maxEmptied is how many parts that were removed are named, in at most maxEmptiedName bytes each.
	maxEmptied     = 10
	maxEmptiedName = 100
	// removed begins the names of what is about to be removed.
	removed = ".removed-"
	// block is what a file takes at least, in bytes.
	block = 4 << 10
)

// home is the directory that programs have as HOME, with their caches. It lasts as long as the
// session, and somebody else removes it with that.
type home struct {
	dir     string // "" is none
	limit   uint64 // bytes
	discard *safefile.Remover

	mu       sync.Mutex    // guards all below, and measurements
	measured time.Duration // how long the last one took; 0 before the first
	ran      time.Duration // how long programs ran since
}

// part is one directory or file of a home: a cache, or what lies beside the caches.
type part struct {
	name  string // below the home, with slashes
	cache bool
	bytes uint64
	used  time.Time // the newest time in it
	over  string    // why it was not measured to its end: what it has; "" if it was
}

// prune measures the home after a program that ran so long, and removes what cannot be measured,
// then its oldest caches, and then the oldest of what lies beside them, while it holds more than
// it may. The text, a line in brackets with a newline before it, says so. A home is not measured
// before programs have run four times as long as the last measurement took.
func (h *home) prune(ran time.Duration) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ran += ran; h.ran < measureShare*h.measured {
		return ""
	}
	began := time.Now()
	emptied, err := h.shrink()
	h.ran, h.measured = 0, time.Since(began)
	text := h.account(emptied)
	if err != nil {
		text += fmt.Sprintf("\n[the home of this agent's programs cannot be measured: %v]", err)
	}
	return text
}

// account says what was removed, and why; "" if nothing was.
func (h *home) account(emptied []part) string {
	if len(emptied) == 0 {
		return ""
	}
	what := "what was used least recently"
	var why, names []string
	for _, p := range emptied {
		reason, held := "more than "+size(h.limit), size(p.bytes)
		if p.over != "" {
			reason, held, what = p.over+", which cannot be measured", p.over, "this"
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
		names = append(names, fmt.Sprintf("%s (%s)", textcut.Clip(textcut.Name(p.name), maxEmptiedName), held))
	}
	if more := len(names) - maxEmptied; more > 0 {
		names = append(names[:maxEmptied], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("\n[the home of this agent's programs held %s, so %s was removed: %s; a program makes or fetches it again when it needs it]",
		strings.Join(why, "; and "), what, strings.Join(names, ", "))
}

// shrink is prune without words: it returns what it removed. No link leads it out of the home:
// the agent's programs may make any there, also while it works.
func (h *home) shrink() (emptied []part, err error) {
	_ = os.Chmod(h.dir, 0o700) // a program may have closed it; opening says what is wrong
	root, err := safefile.OpenRoot(h.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	parts, err := measure(root)
	if err != nil {
		return nil, err
	}
	parts = slices.DeleteFunc(parts, func(p part) bool {
		left := strings.HasPrefix(p.name, removed)
		if left && h.measured == 0 { // by an earlier process
			h.discard.Discard(filepath.Join(h.dir, p.name))
		}
		return left
	})
	var total uint64
	for _, p := range parts {
		total += p.bytes
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.used.Compare(b.used))
	})
	for _, p := range parts {
		if p.over == "" && total <= h.limit {
			break
		}
		aside := removed + rand.Text()
		if err := root.Rename(p.name, aside); err != nil {
			return emptied, err
		}
		h.discard.Discard(filepath.Join(h.dir, aside))
		total -= p.bytes
		emptied = append(emptied, p)
	}
	return emptied, nil
}

// rank is lower for what is removed earlier.
func (p part) rank() int {
	switch {
	case p.over != "":
		return 0
	case p.cache:
		return 1
	}
	return 2
}

// measure finds the parts of a home and how large they are.
func measure(root *os.Root) (parts []part, err error) {
	m := measurement{root: root}
	err = m.each(".", func(name string, info fs.FileInfo) error {
		if name == sandbox.CacheDir && info.IsDir() {
			return m.each(name, func(name string, info fs.FileInfo) error {
				parts = append(parts, m.part(name, info, true))
				return nil
			})
		}
		parts = append(parts, m.part(name, info, false))
		return nil
	})
	return parts, err
}

// measurement is one walk through a home.
type measurement struct {
	root    *os.Root
	entries int
}

// part measures what is called name.
func (m *measurement) part(name string, info fs.FileInfo, cache bool) part {
	p := part{name: name, cache: cache, bytes: block, used: info.ModTime()}
	m.add(&p, name, info, 0)
	return p
}

// add adds a file, or a directory with all that is in it, to a part. What cannot be looked at
// counts for nothing; what is too much has no size.
func (m *measurement) add(p *part, name string, info fs.FileInfo, depth int) {
	if info.ModTime().After(p.used) {
		p.used = info.ModTime()
	}
	if !info.IsDir() {
		p.bytes += (uint64(max(info.Size(), 0)) + block - 1) / block * block
		return
	}
	p.bytes += block
	switch {
	case m.entries > maxHomeEntries:
		p.over = tooMany
	case depth == maxHomeDepth:
		p.over = tooDeep
	}
	if p.over != "" {
		return
	}
	_ = m.each(name, func(name string, info fs.FileInfo) error {
		m.add(p, name, info, depth+1)
		if m.entries++; m.entries > maxHomeEntries {
			p.over = tooMany
		}
		if p.over != "" {
			return errOver
		}
		return nil
	})
}

// Why a part is not measured to its end.
var (
	tooMany = fmt.Sprintf("more than %d files", maxHomeEntries)
	tooDeep = fmt.Sprintf("directories nested more than %d deep", maxHomeDepth)
)

var errOver = errors.New("it is not measured to its end")

// open opens a directory, or nothing. A program may have closed it, for nobody to measure it.
func (m *measurement) open(dir string) (*os.File, error) {
	file, err := m.root.Open(dir + "/.")
	if errors.Is(err, fs.ErrPermission) {
		_ = m.root.Chmod(dir, 0o700) // the second try says what is wrong
		file, err = m.root.Open(dir + "/.")
	}
	return file, err
}

// each calls visit with each entry of a directory, by its name below the root, until an error.
func (m *measurement) each(dir string, visit func(name string, info fs.FileInfo) error) error {
	file, err := m.open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		entries, err := file.ReadDir(256)
		for _, e := range entries {
			info, gone := e.Info()
			if gone != nil {
				continue
			}
			if err := visit(path.Join(dir, e.Name()), info); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// size is a number of bytes for a person.
func size(bytes uint64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
