package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nexus.internal/child/journal"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// sessions are the figures of a conversation on the disk.
func (b *bench) sessions(ctx context.Context, _ *server) (_ []row, err error) {
	if err := errors.Join(b.session("short", 2), b.session("long", crashMessages)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(b.dir, "bare"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	j, _, err := journal.Open(journal.Options{Dir: b.dir, Name: "appended"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	pause := func() error { return nil }
	sync, bare := of(fdatasyncs(ctx, file, b.size.requests/4, pause)), of(b.forkExec(ctx))
	record := of(func() (float64, error) {
		return p50(ctx, b.size.requests/4, func() error { return errors.Join(j.Append(oneRecord), j.Sync()) })
	})
	restored := func(session string) *series {
		return of(func() (float64, error) { return start(b.child(ctx, "--continue="+session)) })
	}
	return measure(ctx, b.size.rounds,
		figure{"journal, a record appended and synced: p50", record, sync, "fdatasync", seconds, ratioAtMost(1.5), p50th},
		figure{"nexus-child, 2 messages restored: p50", restored("short"), bare, "fork-exec", seconds, atMost(30e-3), p50th},
		figure{"nexus-child, " + strconv.Itoa(crashMessages) + " messages restored: p50", restored("long"), bare, "fork-exec", seconds, atMost(30e-3), p50th},
	)
}

// oneRecord has about the bytes of what the floor appends.
var oneRecord = transcript.Message{Message: protocol.Message{
	Role: protocol.RoleUser, Content: strings.Repeat("x", 120), TurnID: "00000000-0000-4000-8000-000000000000",
	At: time.Unix(1_700_000_000, 0).UTC(),
}}

// session saves a conversation of that many messages, each of some sentences,
// with a call in every fourth.
func (b *bench) session(name string, messages int) (err error) {
	j, _, err := journal.Open(journal.Options{Dir: b.dir, Name: name, NoSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	add := func(turn int, m protocol.Message) {
		m.TurnID, m.At = fmt.Sprint("turn-", turn), time.Now().UTC()
		err = errors.Join(err, j.Append(transcript.Message{Message: m}))
	}
	for i := 0; i < messages; {
		turn := i
		add(turn, protocol.Message{Role: protocol.RoleUser, Content: strings.Repeat("a question ", 20)})
		if i%4 == 0 && messages > 2 {
			add(turn, protocol.Message{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{{ID: "c", Name: "read_file", Input: []byte(`{"path":"a.txt"}`)}}})
			add(turn, protocol.Message{Role: protocol.RoleTool, ToolCallID: "c", ToolName: "read_file", Content: strings.Repeat("a line of a file\n", 60)})
			i += 2
		}
		add(turn, protocol.Message{Role: protocol.RoleAssistant, Content: strings.Repeat("an answer ", 40)})
		i += 2
		err = errors.Join(err, j.Append(transcript.TurnEnd{TurnID: fmt.Sprint("turn-", turn), Outcome: "completed", At: time.Now().UTC()}))
	}
	return err
}
