package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// findIn reads in an agent's session how the turns of the given ids ended, at the agent's
// own hand: a turn that is missing in the answer did not, or was cut off by the end of its
// process or of the server. Text and usage are those of the session. No process may be
// writing that turn. The error is that the session cannot be read; one that is not there
// has no turns.
func findIn(session string, ids ...string) (map[string]supervisor.Result, error) {
	found := map[string]supervisor.Result{}
	if len(ids) == 0 {
		return found, nil
	}
	file, err := safefile.Open(session, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for turns in the session: %w", err)
	}
	defer file.Close()
	if err := find(file, ids, found); err != nil {
		return nil, fmt.Errorf("look for turns in the session: %w", err)
	}
	return found, nil
}

func find(r io.Reader, ids []string, found map[string]supervisor.Result) error {
	needles := make([][]byte, len(ids)) // as they stand in a line
	texts := map[string]*strings.Builder{}
	for i, id := range ids {
		quoted, err := jsontext.AppendQuote(nil, id)
		if err != nil {
			continue // not UTF-8, so no turn has it
		}
		needles[i] = quoted
		texts[id] = &strings.Builder{}
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		for _, needle := range needles {
			if needle != nil && bytes.Contains(line, needle) {
				if record, err := transcript.Decode(bytes.TrimSpace(line)); err == nil {
					note(record, texts, found)
				}
				break
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

// note takes what a record says of the turns in texts.
func note(record transcript.Record, texts map[string]*strings.Builder, found map[string]supervisor.Result) {
	switch r := record.(type) {
	case transcript.Message:
		text := texts[r.Message.TurnID]
		if text == nil {
			return
		}
		switch r.Message.Role {
		case protocol.RoleUser: // the turn begins, perhaps again
			text.Reset()
			delete(found, r.Message.TurnID)
		case protocol.RoleAssistant:
			if r.Message.Content != "" && text.Len() > 0 {
				text.WriteString("\n\n")
			}
			text.WriteString(r.Message.Content)
		case protocol.RoleTool, protocol.RoleSystem:
		}
	case transcript.TurnEnd:
		text := texts[r.TurnID]
		if text == nil {
			return
		}
		if result, ok := resultOf(r); ok {
			result.Text = text.String()
			if len(result.Text) > supervisor.MaxText {
				result.Text, result.Truncated = textcut.Head(result.Text, supervisor.MaxText), true
			}
			found[r.TurnID] = result
		}
	default:
	}
}

func resultOf(e transcript.TurnEnd) (supervisor.Result, bool) {
	r := supervisor.Result{TurnID: e.TurnID, Usage: e.Usage, StopReason: protocol.StopReason(e.Outcome)}
	switch r.StopReason {
	case protocol.StopCompleted, protocol.StopMaxIterations, protocol.StopMaxTokens, protocol.StopContentFilter:
		r.Outcome = supervisor.Completed
	case protocol.StopError:
		r.Outcome, r.Err = supervisor.Erred, &supervisor.ChildError{Command: "prompt", Message: e.Error, Reason: e.Reason}
	default:
		// transcript.Interrupted: the process ended first. protocol.StopAborted: it
		// saw the end of its server, as if somebody had cancelled the turn.
		return r, false
	}
	return r, true
}
