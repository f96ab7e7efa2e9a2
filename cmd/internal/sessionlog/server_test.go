package sessionlog_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// server has agents in memory, whose sessions the test writes, and a recorder.
type server struct {
	*testing.T
	home, logs string
	sup        *supervisor.Supervisor
	archive    *sessionlog.Archive
	recorder   *sessionlog.Recorder
	record     func() // starts the recorder
	stop       func() // ends the server, and joins all
}

const patience = 30 * time.Second

// start starts a server in a home that may have been used before, and its recorder.
func start(t *testing.T, home, logs string, plan func(supervisor.Spec, int) supervisortest.Play) *server {
	t.Helper()
	s := startServer(t, home, logs, plan)
	s.record()
	return s
}

// startServer starts a server whose recorder begins at a call of record.
func startServer(t *testing.T, home, logs string, plan func(supervisor.Spec, int) supervisortest.Play) *server {
	t.Helper()
	s := &server{T: t, home: home, logs: logs}
	kept := sessions.Local(home, true, zap.NewNop())
	s.sup = supervisor.New(supervisor.Options{
		Launcher: &supervisortest.Launcher{Plan: plan}, Store: kept, Log: zap.NewNop(),
	})
	var err error
	if s.archive, err = sessionlog.Create(logs); err != nil {
		t.Fatal(err)
	}
	s.recorder, err = sessionlog.NewRecorder(s.archive, sessionlog.Options{
		Home: home, Supervisor: s.sup, Sessions: sessions.New(home, kept), History: kept, Log: zap.NewNop(), Events: true, KeepDays: 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stopRunning := context.WithCancel(context.Background())
	logging, stopLogging := context.WithCancel(context.Background())
	var agents, log sync.WaitGroup
	agents.Go(func() { _ = s.sup.Run(running) })
	s.record = sync.OnceFunc(func() { log.Go(func() { s.recorder.Run(logging) }) })
	s.stop = sync.OnceFunc(func() {
		stopRunning()
		agents.Wait()
		stopLogging()
		log.Wait()
		kept.Close()
		if err := s.archive.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// begin begins the session of an agent, and the agent.
func (s *server) begin(id, parent string) *supervisor.Agent {
	s.Helper()
	s.save(id, transcript.Header{Version: 1, SessionID: "session-of-" + id, Name: id, CreatedAt: begun})
	return s.run(id, parent)
}

func (s *server) run(id, parent string) *supervisor.Agent {
	s.Helper()
	a, err := s.sup.Start(context.Background(), supervisor.Spec{ID: id, Labels: supervisor.Labels{Parent: parent}})
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// save appends records to a session, as a child does.
func (s *server) save(id string, records ...transcript.Record) {
	s.Helper()
	var text []byte
	for _, r := range records {
		var err error
		if text, err = transcript.Append(text, r); err != nil {
			s.Fatal(err)
		}
		text = append(text, '\n')
	}
	s.append(id, text)
}

func (s *server) append(id string, text []byte) {
	s.Helper()
	path := sessions.New(s.home, nil).Path(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.Write(text)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		s.Fatal(err)
	}
}

// begun is when all sessions here were created.
var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func said(role protocol.Role, text string) transcript.Message {
	return transcript.Message{Message: protocol.Message{Role: role, Content: text, TurnID: "t", At: begun.Add(time.Second)}}
}

// prompt plays a turn.
func (s *server) prompt(a *supervisor.Agent, id string) {
	s.Helper()
	turn, err := a.Prompt(context.Background(), protocol.Prompt{ID: id, Message: "x"}, supervisor.PromptOptions{})
	if err == nil {
		_, err = turn.Wait(context.Background())
	}
	if err != nil {
		s.Fatal(err)
	}
}

// entries are those of an agent's session as "kind name: text".
func entries(t *testing.T, logs, agent string) (all []string) {
	t.Helper()
	a, err := sessionlog.Open(logs)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	found, err := a.Find(agent)
	if err == nil {
		err = a.Entries(context.Background(), found.ID, func(e sessionlog.Entry) error {
			all = append(all, strings.TrimSuffix(e.Kind+" "+e.Name, " ")+": "+e.Text)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// marks are the type, status and parent of each session, by its agent.
func marks(t *testing.T, logs string) map[string]string {
	t.Helper()
	a, err := sessionlog.Open(logs)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	all, err := a.List(sessionlog.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range all {
		got[s.AgentID] = strings.TrimSpace(s.Type + " " + s.Status + " " + protocol.Value(s.Parent))
	}
	return got
}

// until waits until the entries of an agent are as wanted.
func (s *server) until(what string, done func() bool) {
	s.Helper()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for began := time.Now(); !done(); <-pause.C {
		if time.Since(began) > patience {
			s.Fatal(what)
		}
	}
}

// seqs are the numbers in an agent's events.jsonl.
func seqs(t *testing.T, logs string) (all []uint64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logs, "*", "events.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	file, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return all
		}
		if err != nil || !gjson.ValidBytes(line) {
			t.Fatalf("%v: %.200q", err, line)
		}
		if gjson.GetBytes(line, "event.type").Str == "gap" { // it stands for those that were not kept
			for n := gjson.GetBytes(line, "event.from").Uint(); n < gjson.GetBytes(line, "seq").Uint(); n++ {
				all = append(all, n)
			}
		}
		all = append(all, gjson.GetBytes(line, "seq").Uint())
	}
}

func wantContiguous(t *testing.T, all []uint64, least int) {
	t.Helper()
	for i, seq := range all {
		if seq != uint64(i)+1 {
			t.Fatalf("line %d has the event %d", i+1, seq)
		}
	}
	if len(all) < least {
		t.Errorf("there are %d events, want at least %d", len(all), least)
	}
}
