package terminal

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/safefile"
)

const (
	// maxHistory is how many lines that were typed are kept, and maxHistoryFile how much of the
	// file is read for them, in bytes.
	maxHistory     = 1000
	maxHistoryFile = 1 << 20
)

// history is what was typed, the last one last, also in runs before.
type history struct {
	path  string
	lines []string
	at    int // the one that is shown; len(lines) for none
	draft string
}

// openHistory reads the file of the home. What cannot be read is no reason not to talk.
func openHistory(home string) *history {
	h := &history{path: filepath.Join(home, "terminal-history.jsonl")}
	f, err := safefile.Open(h.path, os.O_RDONLY)
	if err == nil {
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Size() > maxHistoryFile {
			_, _ = f.Seek(-maxHistoryFile, io.SeekEnd)
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			var line string
			if json.Unmarshal(in.Bytes(), &line) == nil {
				h.lines = append(h.lines, line)
			}
		}
		h.lines = h.lines[max(0, len(h.lines)-maxHistory):]
	}
	h.at = len(h.lines)
	return h
}

// add keeps a line.
func (h *history) add(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	if len(h.lines) == 0 || h.lines[len(h.lines)-1] != line {
		h.lines = append(h.lines, line)
		if data, err := json.Marshal(line); err == nil {
			h.write(append(data, '\n'))
		}
	}
	h.at = len(h.lines)
}

// write adds to the file. What cannot be kept is forgotten with this run.
func (h *history) write(data []byte) {
	f, err := safefile.Open(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY)
	if err != nil {
		return
	}
	_, _ = f.Write(data)
	_ = f.Close()
}

// step goes back (-1) or forth (1) from what is typed now; false at an end.
func (h *history) step(by int, typed string) (string, bool) {
	to := h.at + by
	if to < 0 || to > len(h.lines) {
		return "", false
	}
	if h.at == len(h.lines) {
		h.draft = typed
	}
	if h.at = to; to == len(h.lines) {
		return h.draft, true
	}
	return h.lines[to], true
}

// find is the last line before at that has the text in it.
func (h *history) find(text string, at int) (int, bool) {
	for i := min(at, len(h.lines)) - 1; i >= 0; i-- {
		if text != "" && strings.Contains(h.lines[i], text) {
			return i, true
		}
	}
	return 0, false
}
