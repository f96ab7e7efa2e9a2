package acpserve

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// maxSessions is how many sessions an editor has open at once.
	maxSessions = 256
	// listed is how many saved sessions a page of session/list is made of.
	listed = 100
	// maxDirName bounds what an agent's name has of its directory's, in bytes.
	maxDirName = 40
)

// session is an agent that the editor has open, by its name.
type session struct {
	id string

	mu    sync.Mutex // guards what follows
	turns map[*turn]struct{}
	told  settings // what the editor was told last
	mode  string   // the preset that the editor chose last; "" for none
	// notice is told with the next prompt: an editor takes nothing of a session that it
	// does not know yet.
	notice noticeUpdate
}

// turn is a prompt of the editor.
type turn struct {
	of        *session
	id        string        // its request_id at the server
	cancelled chan struct{} // closed when the editor cancels it
	ended     chan struct{} // closed when all of it was told
	once      sync.Once     // closes cancelled
}

// begin makes a turn that the editor can cancel from now on.
func (x *session) begin() *turn {
	t := &turn{of: x, id: uuid.NewString(), cancelled: make(chan struct{}), ended: make(chan struct{})}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.turns[t] = struct{}{}
	return t
}

// end says that all of the turn was told.
func (t *turn) end() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.turns, t)
	close(t.ended)
}

// cancel cancels the turns, which end later; they are returned.
func (x *session) cancel() (turns []*turn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for t := range x.turns {
		t.once.Do(func() { close(t.cancelled) })
		turns = append(turns, t)
	}
	return turns
}

// check finds what a session cannot be opened with.
func (p openParams) check() error {
	switch {
	case !filepath.IsAbs(p.Cwd):
		return invalid("cwd must be an absolute path, not %.200q", p.Cwd)
	case len(p.AdditionalDirectories) > 0:
		return invalid("additionalDirectories is not supported: write_paths of set_permissions opens further directories to an agent")
	}
	return nil
}

// create is session/new.
func (s *server) create(ctx context.Context, c *client.Client, p openParams) (openResult, error) {
	if err := p.check(); err != nil {
		return openResult{}, err
	}
	dir := cmp.Or(s.o.cwd, filepath.Clean(p.Cwd))
	made := api.CreateAgentParams{AgentID: new(cmp.Or(s.o.agent, nameFor(dir))), DefaultCwd: &dir, Approvals: new(api.ApprovalsAsk)}
	if s.o.preset != "" {
		made.Preset = &s.o.preset
	}
	if s.o.model != "" {
		made.Model = &s.o.model
	}
	runs := false
	if s.o.agent != "" {
		agent, err := running(ctx, c, s.o.agent)
		if err != nil {
			return openResult{}, err
		}
		runs = agent != nil
	}
	if !runs {
		if _, err := client.Do(ctx, c, "", api.CreateAgent, made); err != nil {
			return openResult{}, err
		}
	}
	if runs {
		made.Preset = nil
	}
	_, result, err := s.open(ctx, c, *made.AgentID, protocol.Value(made.Preset), p)
	result.SessionID = *made.AgentID
	return result, err
}

// nameFor is the name of a new agent that works in a directory: acp-DIRECTORY-XXXXXXXX.
func nameFor(dir string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, textcut.Head(filepath.Base(dir), maxDirName))
	name = strings.Trim(name, "-")
	if name != "" {
		name += "-"
	}
	return "acp-" + name + uuid.NewString()[:8]
}

// load is session/load: the editor is told all that was said.
func (s *server) load(ctx context.Context, c *client.Client, p openParams) (openResult, error) {
	x, result, err := s.reopen(ctx, c, p)
	if err != nil {
		return result, err
	}
	return result, s.replay(ctx, c, x)
}

// resume is session/resume, which is load without a word.
func (s *server) resume(ctx context.Context, c *client.Client, p openParams) (openResult, error) {
	_, result, err := s.reopen(ctx, c, p)
	return result, err
}

// reopen opens an agent that there is: one that runs, or that is saved.
func (s *server) reopen(ctx context.Context, c *client.Client, p openParams) (*session, openResult, error) {
	if err := p.check(); err != nil {
		return nil, openResult{}, err
	}
	agent, err := running(ctx, c, p.SessionID)
	if err != nil {
		return nil, openResult{}, err
	}
	if agent == nil {
		if err := wake(ctx, c, p.SessionID); err != nil {
			return nil, openResult{}, err
		}
	}
	now, err := client.Do(ctx, c, p.SessionID, api.GetContext, api.None{})
	if err != nil {
		return nil, openResult{}, err
	}
	if dir := cmp.Or(s.o.cwd, filepath.Clean(p.Cwd)); dir != now.Cwd {
		if _, err := client.Do(ctx, c, p.SessionID, api.SetCwd, api.SetCwdParams{Cwd: dir}); err != nil {
			return nil, openResult{}, err
		}
	}
	return s.open(ctx, c, p.SessionID, "", p)
}

// running is the agent of that name; nil if the server has none.
func running(ctx context.Context, c *client.Client, id string) (*api.AgentInfo, error) {
	all, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil {
		return nil, err
	}
	for _, one := range all.Agents {
		if one.AgentID == id {
			return &one, nil
		}
	}
	return nil, nil
}

// wake starts the agent of a saved session, and has it ask for approvals, whoever made it.
func wake(ctx context.Context, c *client.Client, id string) error {
	for offset := uint64(0); ; {
		page, err := client.Do(ctx, c, "", api.ListSessions, api.ListSessionsParams{Offset: &offset, Limit: new(uint64(api.MaxSessions))})
		if err != nil {
			return err
		}
		for _, one := range page.Sessions {
			if one.Name == id {
				_, err := client.Do(ctx, c, "", api.CreateAgent, api.CreateAgentParams{AgentID: &id, Approvals: new(api.ApprovalsAsk)})
				return err
			}
		}
		offset += uint64(len(page.Sessions))
		if len(page.Sessions) == 0 || offset >= page.Total {
			return notFound(id)
		}
	}
}

// open has the editor use the agent from now on, and says how it is set. preset is the one that it was
// created with; "" if it was there.
func (s *server) open(ctx context.Context, c *client.Client, id, preset string, p openParams) (*session, openResult, error) {
	s.mu.Lock()
	x := s.sessions[id]
	full := x == nil && len(s.sessions) >= maxSessions
	if x == nil && !full {
		x = &session{id: id, turns: map[*turn]struct{}{}}
		s.sessions[id] = x
	}
	s.mu.Unlock()
	if full {
		return nil, openResult{}, invalid("%d sessions are open already: close one of them", maxSessions)
	}
	x.mu.Lock()
	if preset != "" {
		x.mode = preset
	}
	x.mu.Unlock()
	now, err := s.settings(ctx, c, x)
	if err != nil {
		return nil, openResult{}, err
	}
	x.mu.Lock()
	x.told = now
	if len(p.MCPServers) > 0 {
		x.notice = s.leftOut(p.MCPServers)
	}
	x.mu.Unlock()
	return x, openResult{Modes: now.modes(), ConfigOptions: now.options()}, nil
}

// leftOut says that the editor's MCP servers are not used: at once in its log, and in a notice.
func (s *server) leftOut(servers []mcpServer) noticeUpdate {
	names := make([]string, len(servers))
	for i, one := range servers {
		names[i] = textcut.Name(one.Name)
	}
	text := fmt.Sprintf("The agent does not get the MCP servers of the editor (%s): it has those of its own configuration (mcp.json of nexus).", strings.Join(names, ", "))
	_ = s.app.Eprintf("nexus acp: %s\n", text) // there is no other place to say that it fails
	return noticeUpdate{"notice", "warning", "MCP servers of the editor are not used", text}
}

// close is session/close: what runs is cancelled, and the agent's process ends if it does nothing else. The next
// message starts it again.
func (s *server) close(ctx context.Context, c *client.Client, p sessionParams) (none, error) {
	x := s.session(p.SessionID)
	if x == nil {
		return none{}, notFound(p.SessionID)
	}
	for _, t := range x.cancel() {
		select {
		case <-t.ended:
		case <-ctx.Done():
			return none{}, ctx.Err()
		}
	}
	s.mu.Lock()
	delete(s.sessions, x.id)
	s.mu.Unlock()
	agent, err := running(ctx, c, x.id)
	if err == nil && agent != nil && agent.State == "ready" {
		_, err = client.Do(ctx, c, x.id, api.Shutdown, api.None{})
	}
	return none{}, err
}

// delete is session/delete.
func (s *server) delete(ctx context.Context, c *client.Client, p sessionParams) (none, error) {
	if s.session(p.SessionID) != nil {
		if _, err := s.close(ctx, c, p); err != nil {
			return none{}, err
		}
	}
	if _, err := client.Do(ctx, c, "", api.DestroyAgent, api.AgentIDParams{AgentID: p.SessionID}); err != nil {
		return none{}, err
	}
	_, err := client.Do(ctx, c, "", api.DeleteSession, api.DeleteSessionParams{SessionName: p.SessionID})
	return none{}, err
}

// list is session/list: what is saved of people's agents and not empty, the latest first.
func (s *server) list(ctx context.Context, c *client.Client, p listParams) (listResult, error) {
	offset := uint64(0)
	if p.Cursor != nil {
		var err error
		if offset, err = strconv.ParseUint(*p.Cursor, 10, 64); err != nil {
			return listResult{}, invalid("cursor is none of session/list: %.64q", *p.Cursor)
		}
	}
	page, err := client.Do(ctx, c, "", api.ListSessions, api.ListSessionsParams{Offset: &offset, Limit: new(uint64(listed))})
	if err != nil {
		return listResult{}, err
	}
	result := listResult{Sessions: []sessionInfo{}}
	for _, one := range page.Sessions {
		dir := protocol.Value(one.Cwd)
		if one.Damaged != "" || one.Provenance != api.ProvenanceUser || one.MessageCount == 0 || dir == "" || p.Cwd != nil && filepath.Clean(*p.Cwd) != dir {
			continue
		}
		result.Sessions = append(result.Sessions, sessionInfo{
			SessionID: one.Name, Cwd: dir, Title: one.Name, UpdatedAt: time.UnixMilli(int64(one.UpdatedAt * 1000)).UTC().Format(time.RFC3339),
		})
	}
	if next := offset + uint64(len(page.Sessions)); len(page.Sessions) > 0 && next < page.Total {
		result.NextCursor = strconv.FormatUint(next, 10)
	}
	return result, nil
}
