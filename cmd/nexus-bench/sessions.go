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
	err = errors.Join(b.session("short", 2), b.session("ten", 10), b.session("long", crashMessages), b.session("longest", longMessages), b.compacted("compacted", longMessages))
	if err != nil {
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
		figure{"nexus-child, " + strconv.Itoa(longMessages) + " messages restored, never compacted: p50", restored("longest"), restored("ten"), "10 messages", seconds, bound{}, p50th},
		figure{"nexus-child, " + strconv.Itoa(longMessages) + " messages restored, a compaction every " + strconv.Itoa(compactEvery) + ": p50", restored("compacted"), restored("ten"), "10 messages", seconds, ratioAtMost(2), p50th},
	)
}

// How long a conversation is that was saved for long, and after how many messages it is
// compacted.
const (
	longMessages = 10_000
	compactEvery = 100
)

// compacted saves a conversation as session does, with a compaction after every
// compactEvery messages, which keeps the last two turns, and 20 messages after the last.
func (b *bench) compacted(name string, messages int) (err error) {
	if err := b.session(name, 20); err != nil {
		return err
	}
	for left := messages - 20; left > 0 && err == nil; left -= compactEvery {
		err = b.compact(name)
		if err == nil {
			err = b.session(name, min(left, compactEvery))
		}
	}
	return err
}

// compact replaces all but the last two turns of a conversation by a summary.
func (b *bench) compact(name string) (err error) {
	j, state, err := journal.Open(journal.Options{Dir: b.dir, Name: name, NoSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	return j.Commit(transcript.Compaction{
		Dropped: uint64(len(state.Messages) - 4), At: time.Now().UTC(),
		Summary: protocol.Message{Role: protocol.RoleUser, Content: strings.Repeat("a summary ", 200), At: time.Now().UTC()},
	})
}

// oneRecord has about the bytes of what the floor appends.
var oneRecord = transcript.Message{Message: protocol.Message{
	Role: protocol.RoleUser, Content: strings.Repeat("x", 120), TurnID: "00000000-0000-4000-8000-000000000000",
	At: time.Unix(1_700_000_000, 0).UTC(),
}}

// conversation is one of that many messages, as it is saved.
func (b *bench) conversation(name string, messages int) ([]byte, error) {
	if err := b.session(name, messages); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(b.dir, name+".jsonl"))
}

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
