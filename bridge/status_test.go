//go:build unix

package bridge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// stage is a rig on which one condition comes about.
type stage struct {
	*rig
	begun chan string   // the messages whose turns began
	close chan struct{} // ends the turns that hang
}

// staged is a server whose agent a does what its messages say.
func staged(t *testing.T, change func(*bridge.Options), policy supervisor.Policy) *stage {
	s := &stage{begun: make(chan string, 100), close: make(chan struct{})}
	s.rig = rigged(t, func(r *rig, o *bridge.Options) {
		s.rig = r
		plays(s.play)(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
			s.QueueLimit, s.Policy = 8, policy
			if s.ID == "one" {
				s.MaxAgents = new(uint64(1))
			}
			return nil
		}}
		checks := o.Runtime
		o.Runtime = withCheck{o.Runtime, func(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
			switch p.Code {
			case "strange":
				return api.ValidateCodeResult{}, &protocol.CodeError{Kind: protocol.CheckerFailed, Message: "looks: exit status 7"}
			case "files":
				return api.ValidateCodeResult{}, &os.PathError{Op: "open", Path: "a secret", Err: syscall.EMFILE}
			case "unforeseen":
				return api.ValidateCodeResult{}, errors.New("a secret")
			}
			return checks.Check(ctx, p)
		}}
		launch := r.launcher.Plan
		r.launcher.Plan = func(spec supervisor.Spec, n int) supervisortest.Play {
			if spec.ID == "broken" {
				return supervisortest.Play{Refuse: &supervisor.StartError{Err: errors.New("no model"), Exit: &supervisor.Exit{Code: 2}}}
			}
			play := launch(spec, n)
			if spec.ID == "mute" {
				play.Command = func(_ *supervisortest.Child, cmd protocol.Command) bool {
					s.begun <- cmd.Name()
					return cmd.Name() == "get_state"
				}
			}
			if spec.ID == "full" {
				play.Command = func(c *supervisortest.Child, cmd protocol.Command) bool {
					if set, ok := cmd.(protocol.SetModel); ok {
						c.Respond(set, map[string]any{
							"ok": false, "error": "save session: no space left on device", "reason": protocol.StorageFull,
						})
						return true
					}
					return false
				}
			}
			return play
		}
		if change != nil {
			change(o)
		}
	})
	s.create("a")
	return s
}

func (s *stage) play(c *supervisortest.Child, p protocol.Prompt) {
	s.begun <- p.Message
	switch {
	case p.Message == "crash":
		c.Crash(supervisor.Exit{Code: 3})
	case p.Message == "fail":
		c.Fail(p, "the model is gone")
	case p.Message == "fail by name":
		c.Fail(p, "prompt: it cannot be saved")
	case strings.HasPrefix(p.Message, "fail for "):
		no := protocol.Refusal{Reason: strings.TrimPrefix(p.Message, "fail for ")}
		if no.Reason == protocol.RateLimited {
			no.RetryAfterMS = 20500
		}
		c.FailFor(p, "the model is gone", no)
	case p.Message == "much":
		c.Say(strings.Repeat("x", 6<<20))
		c.Finish(p, "")
	case p.Message == "hang", strings.HasPrefix(p.Message, "Make a plan"):
		select {
		case <-s.close:
			supervisortest.Echo(c, p)
		case <-c.Aborted():
			c.Finish(p, "")
		case <-c.Gone():
		}
	case strings.HasPrefix(p.Message, "Carry out this task"), strings.HasPrefix(p.Message, "Your answer could not be used"):
		c.Say("I would rather not say.")
		c.Finish(p, "")
	default:
		calls(c, p)
	}
}

// hang has agent a busy with a turn.
func (s *stage) hang() {
	s.sendAsync("a", api.SendParams{Content: "hang", RequestID: new("hang")})
	<-s.begun
}

// TestStatusTable brings about every condition of the table of SPEC §6.2 and
// compares the answer with it, and with fixtures/rpc/errors.
func TestStatusTable(t *testing.T) {
	rows := statusTable(t)
	for _, e := range exchanges {
		t.Run(e.name, func(t *testing.T) {
			s := staged(t, e.change, e.policy)
			if e.before != nil {
				e.before(s)
			}
			shown, failure := e.play(s)
			if e.status != 0 {
				wantError := []string{"code", "message", "data"}
				var members []string
				failure.ForEach(func(key, _ gjson.Result) bool { members = append(members, key.Str); return true })
				if diff := cmp.Diff(wantError, members); diff != "" {
					t.Errorf("it is no error of the specification: %s", failure.Raw)
				}
				for _, member := range []string{"type", "details", "recovery_suggestions"} {
					if !failure.Get("data." + member).Exists() {
						t.Errorf("data lacks %s: %s", member, failure.Raw)
					}
				}
				if got := failure.Get("message").Str; got != e.message || failure.Get("data.type").Str != e.kind {
					t.Errorf("got %s, want %q of type %s", failure.Raw, e.message, e.kind)
				}
			} else if !strings.HasPrefix(failure.Get("message").Str, e.message) {
				t.Errorf("got %s, want %s", failure.Raw, e.message)
			}
			if got := int(failure.Get("code").Int()); got != e.code {
				t.Errorf("code %d, want %d", got, e.code)
			}
			at := slices.IndexFunc(rows, func(r row) bool { return strings.HasPrefix(r.condition, e.row) })
			if at < 0 {
				t.Fatalf("SPEC.md has no row %q", e.row)
			}
			rows[at].compare(t, e)
			fixtures.Golden(t, "rpc/errors/"+e.name+".txt", []byte(shown))
		})
	}
}

// Each row of SPEC.md's table, with each of its statuses, types and messages, is
// among the exchanges, and no type is told that the table does not have.
func TestStatusTableIsWhole(t *testing.T) {
	types := map[string]bool{}
	for _, r := range statusTable(t) {
		seen := map[string]bool{}
		for _, e := range exchanges {
			if strings.HasPrefix(r.condition, e.row) {
				seen[strconv.Itoa(e.status)], seen[e.kind] = true, true
				for _, m := range r.messages {
					if m.pattern.MatchString(e.message) {
						seen[m.text] = true
					}
				}
			}
		}
		for _, m := range r.messages {
			if !seen[m.text] {
				t.Errorf("%q: nobody asks for the message %q", r.condition, m.text)
			}
		}
		for _, want := range append(slices.Clone(r.kinds), r.statuses...) {
			if !seen[want] {
				t.Errorf("%q: nobody asks for %s", r.condition, want)
			}
		}
		for _, kind := range r.kinds {
			types[kind] = true
		}
	}
	source, err := os.ReadFile("api/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`ErrorKind = "([A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		if !types[match[1]] {
			t.Errorf("bridge/api has the type %s, and SPEC.md has not", match[1])
		}
	}
}

// play asks and returns both sides as they are shown, and the error.
func (e exchange) play(s *stage) (shown string, failure gjson.Result) {
	s.t.Helper()
	if e.status == 0 {
		result, err := client.Do(s.ctx(), s.client, "a", api.Send, api.SendParams{Content: e.request})
		if err != nil {
			s.t.Fatal(err)
		}
		answer := protocol.Value(result.Content)
		code, message, _ := strings.Cut(strings.TrimPrefix(answer, "error "), " ")
		number, _ := strconv.Atoi(code)
		return e.request + "\n---\n" + answer + "\n", gjson.Parse(fmt.Sprintf(`{"code":%d,"message":%q}`, number, message))
	}
	request := strings.Replace(e.request, "$LONG", strings.Repeat("x", 80<<10), 1)
	for name, scope := range map[string]auth.Scope{"Bearer $READER": auth.ScopeRead, "Bearer $AGENT_KEY": auth.ScopeAgent} {
		if strings.Contains(request, name) {
			bearer, _ := s.scoped(scope, map[auth.Scope]string{auth.ScopeAgent: "a"}[scope])
			request = strings.Replace(request, name, bearer, 1)
		}
	}
	conn := s.dial()
	if _, err := conn.Write([]byte(s.expand(request))); err != nil {
		s.t.Fatal(err)
	}
	if e.during != nil {
		e.during(s)
	}
	response, body := readResponse(s.t, bufio.NewReader(conn))
	if response.StatusCode != e.status {
		s.t.Errorf("HTTP %d, want %d: %.500s", response.StatusCode, e.status, body)
	}
	if allow := response.Header.Get("Allow") != ""; allow != (e.status == http.StatusMethodNotAllowed) {
		s.t.Errorf("Allow is %q", response.Header.Get("Allow"))
	}
	answer := gjson.Parse(body)
	if answer.IsArray() {
		answer = answer.Get("#(error)")
	}
	if answer.Get("jsonrpc").Str != "2.0" || !answer.Get("id").Exists() || answer.Get("result").Exists() {
		s.t.Errorf("it is no answer of the specification: %.500s", body)
	}
	body = regexp.MustCompile(`x{1000,}`).ReplaceAllString(body, "xxx…")
	return e.request + "---\n" + show(response, body), answer.Get("error")
}

// row is one condition as SPEC.md has it.
type row struct {
	condition       string
	statuses, kinds []string
	code            int
	messages        []message
}

// message is one of a row's, and what fits it: ID, NAME and the like stand for
// anything, and so does ….
type message struct {
	text    string
	pattern *regexp.Regexp
}

func (r row) compare(t *testing.T, e exchange) {
	t.Helper()
	if !slices.Contains(r.statuses, strconv.Itoa(e.status)) || r.code != e.code || !slices.Contains(r.kinds, e.kind) ||
		!slices.ContainsFunc(r.messages, func(m message) bool { return m.pattern.MatchString(e.message) }) {
		t.Errorf("SPEC.md says %q: HTTP %v, %d %v, %v", r.condition, r.statuses, r.code, r.messages, r.kinds)
	}
}

var (
	codeCell    = regexp.MustCompile(`^(-\d+) (.+)$`)
	placeholder = regexp.MustCompile(`\b[A-Z]+\b|…`)
)

// statusTable reads the table of SPEC §6.2.
func statusTable(t *testing.T) (rows []row) {
	t.Helper()
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(spec), "\n### 6.2 ")
	section, _, _ = strings.Cut(section, "\n### ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 4 || strings.HasPrefix(line, "| condition") {
			continue
		}
		code := codeCell.FindStringSubmatch(cells[2])
		if code == nil {
			t.Fatalf("no code and message: %s", line)
		}
		r := row{
			condition: strings.TrimPrefix(cells[0], "| "), kinds: strings.Split(strings.TrimSuffix(cells[3], " |"), ", "),
			statuses: strings.Split(strings.Replace(cells[1], "–", "0", 1), ", "),
		}
		r.code, _ = strconv.Atoi(code[1])
		for text := range strings.SplitSeq(strings.Trim(code[2], `"`), `", "`) {
			pattern := "^"
			for i, part := range placeholder.Split(text, -1) {
				if i > 0 {
					pattern += ".+"
				}
				pattern += regexp.QuoteMeta(part)
			}
			r.messages = append(r.messages, message{text, regexp.MustCompile(pattern + "$")})
		}
		rows = append(rows, r)
	}
	if len(rows) < 40 {
		t.Fatalf("SPEC.md has %d rows that can be read", len(rows))
	}
	return rows
}
