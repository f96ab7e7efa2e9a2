package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

const (
	maxEdit  = 16 << 20 // bytes of a file that is edited, before and after
	maxNamed = 10       // places that an answer names
	byteMark = "\uFEFF" // the byte order mark that some files in UTF-8 begin with
)

var editSpec = tool.Spec{
	Name: "edit_file",
	Description: "Replace a piece of a text file by another. The piece must be in the file " +
		"exactly once, unless replace_all is true. Several pieces at once: edits, in their order, all of them or none. " +
		"Line endings, encoding and mode of the file stay as they are.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, absolute or relative to the working directory"},` +
		`"old_text":{"type":"string","description":"what is to be replaced, exactly as it stands in the file, with its indentation"},` +
		`"new_text":{"type":"string","description":"what is to stand there instead"},` +
		`"replace_all":{"type":"boolean","description":"replace it wherever it stands; false by default"},` +
		`"edits":{"type":"array","description":"instead of old_text and new_text: up to 100 edits, each of what the ones before it made",` +
		`"items":{"type":"object","properties":{"old_text":{"type":"string"},"new_text":{"type":"string"},"replace_all":{"type":"boolean"}},` +
		`"required":["old_text","new_text"],"additionalProperties":false}}},` +
		`"required":["path"],"additionalProperties":false}`),
}

type editInput struct {
	Path       string         `json:"path"`
	OldText    *string        `json:"old_text"`
	NewText    *string        `json:"new_text"`
	ReplaceAll *bool          `json:"replace_all"`
	Edits      *[]replacement `json:"edits"`
}

// replacement is one edit of a file.
type replacement struct {
	OldText    string `json:"old_text"`
	NewText    string `json:"new_text"`
	ReplaceAll *bool  `json:"replace_all"`
}

// maxEdits bounds the edits of one call.
const maxEdits = 100

// edits are those that the input asks for.
func (in editInput) edits() ([]replacement, error) {
	switch {
	case in.Edits == nil && in.OldText == nil:
		return nil, &strict.Error{Path: "old_text", Problem: "is missing, and so is edits"}
	case in.Edits == nil && in.NewText == nil:
		return nil, &strict.Error{Path: "new_text", Problem: "is missing"}
	case in.Edits == nil:
		one := replacement{*in.OldText, *in.NewText, in.ReplaceAll}
		return []replacement{one}, one.check("")
	case in.OldText != nil || in.NewText != nil || in.ReplaceAll != nil:
		return nil, &strict.Error{Path: "edits", Problem: "excludes old_text, new_text and replace_all beside it"}
	case len(*in.Edits) == 0 || len(*in.Edits) > maxEdits:
		return nil, &strict.Error{Path: "edits", Problem: fmt.Sprintf("has %d edits, want 1 to %d", len(*in.Edits), maxEdits)}
	}
	for i, one := range *in.Edits {
		if err := one.check(fmt.Sprintf("edits[%d].", i)); err != nil {
			return nil, err
		}
	}
	return *in.Edits, nil
}

func (r replacement) check(path string) error {
	switch {
	case r.OldText == "":
		return &strict.Error{Path: path + "old_text", Problem: "is empty; write_file makes a file"}
	case r.OldText == r.NewText:
		return &strict.Error{Path: path + "new_text", Problem: "is the same as old_text"}
	}
	return nil
}

func (in editInput) about() (paths []string, summary string) {
	return []string{in.Path}, "edit " + in.Path
}

func (in editInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	edits, err := in.edits()
	if err != nil {
		return tool.Result{}, err
	}
	p, err := s.find("edit", in.Path, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	content, e, before, err := p.whole(ctx, "edit")
	if err != nil {
		return tool.Result{}, err
	}
	edited, answer, err := replacedAll(ctx, content, edits)
	if err == nil {
		edited, err = e.encode(edited)
	}
	if err != nil {
		return tool.Result{}, fmt.Errorf("edit %s: %w", in.Path, err)
	}
	changed, err := carryOut(ctx, &change{attempt: "edit", at: p, content: strings.NewReader(edited), seen: before})
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: fmt.Sprintf("edited %s: %s", in.Path, answer), Changed: changed}, nil
}

// whole reads all of a text file, and its state before that. Its errors are for the model.
func (p *place) whole(ctx context.Context, attempt string) (string, encoding, fs.FileInfo, error) {
	fail := func(err error) (string, encoding, fs.FileInfo, error) { return "", notText, nil, err }
	f, info, err := p.regular(attempt)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	tooLarge := fmt.Errorf("%s %s: it has more than the %d bytes that can be edited", attempt, p.asked, maxEdit)
	if info.Size() > maxEdit {
		return fail(tooLarge)
	}
	raw, err := io.ReadAll(io.LimitReader(cancelled{ctx, f}, maxEdit+1))
	switch {
	case ctx.Err() != nil:
		return fail(ctx.Err())
	case err != nil:
		return fail(explain(attempt, p.asked, err))
	case len(raw) > maxEdit:
		return fail(tooLarge)
	}
	e := sniff(raw[:min(len(raw), sniffed)])
	if e == notText {
		return fail(fmt.Errorf("%s %s: it is not a text file (%d bytes)", attempt, p.asked, info.Size()))
	}
	if e == inUTF8 {
		return string(raw), e, info, nil
	}
	text, err := io.ReadAll(e.reader(cancelled{ctx, bytes.NewReader(raw)}))
	if err != nil {
		return fail(err)
	}
	if again, err := e.encode(string(text)); err != nil || again != string(raw) {
		return fail(fmt.Errorf("%s %s: it is %v, and damaged: not all of it could be put back", attempt, p.asked, e))
	}
	return string(text), e, info, nil
}

// cancelled is a reader that fails once its context has ended.
type cancelled struct {
	ctx context.Context // of the one call that it lives for
	r   io.Reader
}

func (c cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// replacedAll is the content after all edits, and a word on each.
func replacedAll(ctx context.Context, content string, edits []replacement) (edited, answer string, err error) {
	var words []string
	edited = content
	for i, one := range edits {
		var word string
		if edited, word, err = replaced(ctx, edited, one.OldText, one.NewText, protocol.Value(one.ReplaceAll)); err != nil {
			if len(edits) > 1 {
				err = fmt.Errorf("edits[%d] (nothing was changed): %w", i, err)
			}
			return "", "", err
		}
		words = append(words, word)
	}
	return edited, strings.Join(words, "; "), nil
}

// replaced is the content with the old text replaced, and a word on where that
// was. A byte order mark is no part of the text.
func replaced(ctx context.Context, content, old, text string, all bool) (edited, answer string, err error) {
	body, marked := strings.CutPrefix(content, byteMark)
	if marked {
		old, text = strings.TrimPrefix(old, byteMark), strings.TrimPrefix(text, byteMark)
		if old == "" {
			return "", "", errors.New("old_text is nothing but a byte order mark, which stays as it is")
		}
	}
	places, length := find(body, old)
	switch {
	case len(places) == 0:
		return "", "", missing(ctx, body, "old_text", old)
	case !all:
		// "aa" is in "aaa" twice.
		next := places[0] + 1
		if again := strings.Index(body[next:min(len(body), places[0]+2*length-1)], body[places[0]:places[0]+length]); again >= 0 && len(places) == 1 {
			places = append(places, next+again)
		}
		if len(places) > 1 {
			return "", "", fmt.Errorf("old_text is there %d times, %s: put more of the text around it into it, or set replace_all",
				len(places), inLines(body, places))
		}
	}
	if len(body)+len(places)*(len(text)+strings.Count(text, "\n")-length) > maxEdit {
		return "", "", fmt.Errorf("it would have more than %d bytes", maxEdit)
	}
	var b strings.Builder
	if marked {
		b.WriteString(byteMark)
	}
	unix := strings.ReplaceAll(text, "\r\n", "\n")
	dos := strings.ReplaceAll(unix, "\n", "\r\n")
	at := 0
	for _, place := range places {
		b.WriteString(body[at:place])
		switch ending(body, place) {
		case "\n":
			b.WriteString(unix)
		case "\r\n":
			b.WriteString(dos)
		default:
			b.WriteString(text)
		}
		at = place + length
	}
	b.WriteString(body[at:])
	if b.String() == content {
		return "", "", errors.New("that changes nothing: line endings stay as they are")
	}
	return b.String(), fmt.Sprintf("replaced %d %s, %s", len(places), plural(len(places), "place"), inLines(body, places)), nil
}

// find returns where old stands in body, and its length there: as it is, or
// with the other kind of line endings.
func find(body, old string) (places []int, length int) {
	unix := strings.ReplaceAll(old, "\r\n", "\n")
	for _, wanted := range []string{old, strings.ReplaceAll(unix, "\n", "\r\n"), unix} {
		for at := 0; ; {
			i := strings.Index(body[at:], wanted)
			if i < 0 {
				break
			}
			places = append(places, at+i)
			at += i + len(wanted)
		}
		if len(places) > 0 {
			return places, len(wanted)
		}
	}
	return nil, 0
}

// ending is the line ending nearest to a place: that of its own line, or of the
// line before; "" in a text of one line.
func ending(body string, place int) string {
	i := strings.IndexByte(body[place:], '\n')
	if i >= 0 {
		i += place
	} else {
		i = strings.LastIndexByte(body[:place], '\n')
	}
	switch {
	case i < 0:
		return ""
	case i > 0 && body[i-1] == '\r':
		return "\r\n"
	default:
		return "\n"
	}
}

// inLines names the lines of places, which are in order, each once: "in line 3",
// "in lines 3, 5 and 9".
func inLines(body string, places []int) string {
	var named []string
	line, at := 1, 0
	for _, place := range places[:min(len(places), maxNamed)] {
		line += strings.Count(body[at:place], "\n")
		at = place
		if number := strconv.Itoa(line); len(named) == 0 || named[len(named)-1] != number {
			named = append(named, number)
		}
	}
	last := len(named) - 1
	switch {
	case len(places) > maxNamed:
		return fmt.Sprintf("in lines %s and more", strings.Join(named, ", "))
	case last == 0:
		return "in line " + named[0]
	default:
		return fmt.Sprintf("in lines %s and %s", strings.Join(named[:last], ", "), named[last])
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
