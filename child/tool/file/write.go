package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
)

var writeSpec = tool.Spec{
	Name:        "write_file",
	Description: "Write a text file. It replaces what is there, keeps its line endings and encoding, and makes missing directories.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, absolute or relative to the working directory"},` +
		`"content":{"type":"string","description":"all that the file is to hold"}},` +
		`"required":["path","content"],"additionalProperties":false}`),
}

type writeInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (in writeInput) about() (paths []string, summary string) {
	return []string{in.Path}, fmt.Sprintf("write %s (%d bytes)", in.Path, len(in.Content))
}

func (in writeInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	p, err := s.find("write", in.Path, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	content, kept := p.likeOld(ctx, in.Content)
	c := &change{attempt: "write", at: p, content: strings.NewReader(content)}
	var result tool.Result
	if result.Changed, err = carryOut(ctx, c); err != nil {
		return tool.Result{}, err
	}
	if c.old == nil {
		kept, result.Created = " (a new file)", result.Changed
	}
	result.Text = fmt.Sprintf("wrote %d bytes to %s%s", len(content), in.Path, kept)
	return result, nil
}

// likeOld gives the content the line endings, the byte order mark and the
// encoding of the text that it replaces, and says so.
func (p *place) likeOld(ctx context.Context, content string) (alike, kept string) {
	file, _, err := p.regular("write")
	if err != nil {
		return content, "" // put finds out what is wrong with it
	}
	defer file.Close()
	head, err := peek(file)
	e := sniff(head)
	if err != nil || len(head) == 0 || e == notText {
		return content, ""
	}
	var said []string
	alike = content
	if onlyCRLF(ctx, e.reader(file)) && !strings.Contains(alike, "\r\n") && strings.Contains(alike, "\n") {
		alike = strings.ReplaceAll(alike, "\n", "\r\n")
		said = append(said, "CRLF line endings kept")
	}
	if marked := e != inUTF8 && e != inWindows1252 || strings.HasPrefix(string(head), byteMark); marked && !strings.HasPrefix(alike, byteMark) {
		alike = byteMark + alike
	}
	stored, err := e.encode(alike)
	switch {
	case err != nil:
		said = append(said, fmt.Sprintf("it was in %v and is in UTF-8 now", e))
	case e != inUTF8:
		alike = stored
		said = append(said, fmt.Sprintf("kept in %v", e))
	}
	if len(said) > 0 {
		kept = " (" + strings.Join(said, ", ") + ")"
	}
	return alike, kept
}

// onlyCRLF reports whether all line endings within the first MiB are CRLF, and
// there are some.
func onlyCRLF(ctx context.Context, text io.Reader) bool {
	lines := bufio.NewReader(io.LimitReader(cancelled{ctx, text}, 1<<20))
	some, before := false, byte(0)
	for {
		piece, err := lines.ReadSlice('\n')
		if n := len(piece); n > 0 && piece[n-1] == '\n' {
			if n > 1 {
				before = piece[n-2]
			}
			if before != '\r' {
				return false
			}
			some = true
		}
		if len(piece) > 0 {
			before = piece[len(piece)-1]
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return some
		}
	}
}
