package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// canary is the key of a provider. Outside the server it must be nowhere.
const canary = "sk-canary-3f9a77b1c2d4e5f60718293a4b5c6d7e"

// parroted is what a service says beside its key.
const parroted = "canary-service-6b1d"

// TestNoCredentials looks for a key wherever an agent, its tools or a client
// could see one, while the service that it is for says it back at every
// occasion.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	vendor := newVendor(t)
	s := startServer(t, vendor)
	events := s.follow("spy")
	vendor.socket = s.socket()
	child := s.pid("spy")

	var answers strings.Builder
	for _, prompt := range []string{"echo", "fail", "refuse", "list the models", "look around", "spend it"} {
		fmt.Fprintln(&answers, s.send("spy", prompt))
	}
	for _, method := range []string{"get_messages", "get_context", "get_model", "get_tokens"} {
		fmt.Fprintln(&answers, s.call("/agent/spy", method, `{}`))
	}
	fmt.Fprintln(&answers, s.call("/", "list_agents", `{}`))

	// While it runs: everything that /proc tells of it.
	for _, file := range []string{"environ", "cmdline", "maps"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", child, file))
		if err != nil {
			t.Logf("the child's %s cannot be read here: %v", file, err)
		}
		clear := bytes.Contains(data, []byte(canary))
		if clear {
			t.Errorf("the key is in the child's %s", file)
		}
	}
	if found, err := inMemory(child, canary); err != nil {
		t.Logf("the child's memory cannot be read here: %v", err)
	} else if found {
		t.Error("the key is in the child's memory")
	}
	// The same look finds it where it is, or it would prove nothing.
	if found, err := inMemory(s.cmd.Process.Pid, canary); err == nil && !found {
		t.Error("the look for a key does not find it in the server's own memory")
	}
	if !vendor.sawKey() {
		t.Error("the service never got the key")
	}
	if !strings.Contains(answers.String(), "***") {
		t.Errorf("the service's echo is not in the answers, so nothing was tried:\n%s", answers.String())
	}

	s.end()
	look := map[string]string{"an answer": answers.String(), "the events": events(), "the server's log": s.log.String()}
	// A tool that asks at its agent's socket finds none, or is told that it is not
	// for it.
	seen := look["the events"]
	if !regexp.MustCompile(`asked the model and got 403|no: .*(no such file|permission denied)`).MatchString(seen) || strings.Contains(seen, "asked the model and got 200") {
		t.Errorf("a tool at the agent's socket was not refused:\n%s", seen)
	}
	if !regexp.MustCompile(`"toolcall_result".*PATH=.*looked`).MatchString(seen) {
		t.Errorf("no tool looked around:\n%s", seen)
	}
	err := filepath.WalkDir(s.home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		look[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(look[filepath.Join(s.home, "sessions", "spy.jsonl")], "echo") {
		t.Errorf("the session was not looked at: %v", slices.Sorted(maps.Keys(look)))
	}
	for where, text := range look {
		if strings.Contains(text, canary) || strings.Contains(text, canary[8:20]) {
			t.Errorf("the key is in %s:\n%s", where, text)
		}
	}
	if _, err := os.Stat(vendor.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestKilledAgentLeavesItsModel kills a child in the middle of an answer.
func TestKilledAgentLeavesItsModel(t *testing.T) {
	t.Parallel()
	vendor := newVendor(t)
	s := startServer(t, vendor)
	sent := make(chan string)
	go func() { sent <- s.send("spy", "forever") }()
	<-vendor.began
	if err := syscall.Kill(s.pid("spy"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-vendor.left:
	case <-time.After(patience):
		t.Error("the request at the service goes on")
	}
	if answer := <-sent; gjson.Get(answer, "error.data.type").Str != "CHILD_CRASHED" {
		t.Errorf("got %s", answer)
	}
	s.end()
}

// TestBudgetEnds spends what create_agent gave, also over a restart.
func TestBudgetEnds(t *testing.T) {
	t.Parallel()
	vendor := newVendor(t)
	s := startServer(t, vendor)
	s.call("/", "create_agent", `{"agent_id":"poor","limits":{"tokens":100}}`)
	if answer := s.send("poor", "echo"); gjson.Get(answer, "result.stop_reason").Str != "completed" {
		t.Fatalf("got %s", answer)
	}
	spent := "agent poor has used 130 of its 100 tokens: set_limits can raise limits.tokens"
	answer := s.send("poor", "echo")
	told := gjson.Get(answer, "error")
	if told.Get("message").Str != spent || told.Get("data.type").Str != "BUDGET_EXCEEDED" || told.Get("data.recovery_suggestions.0").Str != "Raise limits.tokens with set_limits of agent poor." || strings.Contains(answer, "402") { // our limit is no status of HTTP
		t.Errorf("got %s, want the message %q", answer, spent)
	}
	if err := syscall.Kill(s.pid("poor"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if answer := s.send("poor", "echo"); !strings.Contains(answer, spent) && !strings.Contains(answer, "CHILD_CRASHED") {
		t.Errorf("after a crash: %s", answer)
	}
	if answer := s.send("poor", "echo"); !strings.Contains(answer, spent) {
		t.Errorf("after a crash: %s", answer)
	}
	s.end()
	s.again()
	if answer := s.send("poor", "echo"); !strings.Contains(answer, spent) {
		t.Errorf("after a restart of the server: %s", answer)
	}
	s.call("/", "destroy_agent", `{"agent_id":"poor"}`)
	if answer := s.call("/", "create_agent", `{"agent_id":"poor","limits":{"tokens":9000}}`); !strings.Contains(answer, "limits.tokens: the saved agent poor has 100") {
		t.Errorf("created with a higher limit: %s", answer)
	}
	s.call("/agent/poor", "set_limits", `{"limits":{"tokens":9000}}`)
	s.end()
	s.again()
	if answer := s.call("/agent/poor", "get_limits", `{}`); gjson.Get(answer, "result.limits.tokens").Num != 9000 || gjson.Get(answer, "result.tokens_used").Num != 130 {
		t.Errorf("the limits after a restart: %s", answer)
	}
	if answer := s.send("poor", "echo"); gjson.Get(answer, "result.stop_reason").Str != "completed" {
		t.Errorf("with a higher limit: %s", answer)
	}
	s.end()
}

// vendor is a service that speaks chat completions and tells everybody the key
// that it got.
type vendor struct {
	*httptest.Server
	began, left chan struct{}
	ask, socket string // a program that asks at a socket, and the agent's

	mu  sync.Mutex // guards key
	key string
}

func newVendor(t *testing.T) *vendor {
	v := &vendor{began: make(chan struct{}, 1), left: make(chan struct{}, 1)}
	v.Server = httptest.NewServer(v)
	t.Cleanup(v.Close)
	v.ask = filepath.Join(t.TempDir(), "ask-socket")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, v.ask); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *vendor) sawKey() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.key == canary
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	v.mu.Lock()
	v.key = key
	v.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Request-Id", key)
	w.Header().Set("X-Key", key)
	messages := gjson.GetBytes(body, "messages").Array()
	prompt, results := "", 0
	for _, m := range messages {
		switch m.Get("role").Str {
		case "user":
			prompt, results = m.Get("content").String(), 0
		case "tool":
			results++
		}
	}
	switch {
	case r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"data":[{"id":"%s"},{"id":"m"}]}`, key)
	case strings.Contains(prompt, "fail"):
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"error":{"message":"I do not like %s, nor %s","type":"invalid_request_error"}}`, key, key[8:20])
	case strings.Contains(prompt, "parrot"): // with the words of whoever asked, in each way that a service may
		said := `{"error":{"message":` + strconv.Quote(parroted+" "+prompt) + `,"code":"` + parroted + `","type":"` + parroted + `"}}`
		switch {
		case strings.Contains(prompt, "stream"):
			v.stream(w, `{"choices":[{"delta":{"content":"`+parroted+`"}}]}`, said)
		case strings.Contains(prompt, "malformed"):
			v.stream(w, parroted+prompt)
		case strings.Contains(prompt, "garbage"):
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "%s %s\r\n\r\n", parroted, prompt)
		default:
			w.Header().Set("Retry-After-Ms", "1")
			status, _ := strconv.Atoi(strings.Fields(prompt)[1])
			w.WriteHeader(status)
			fmt.Fprint(w, said)
		}
	case strings.Contains(prompt, "refuse"):
		w.WriteHeader(401)
		fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s***%s"}}`, key[:20], key[30:])
	case strings.Contains(prompt, "look around") && results == 0:
		v.call(w, "cat /proc/*/environ /proc/*/cmdline | tr -c '[:print:]' ' '; env; echo looked")
	case strings.Contains(prompt, "spend it") && results == 0:
		v.call(w, v.ask+" "+v.socket)
	case strings.Contains(prompt, "forever"):
		v.stream(w, `{"choices":[{"delta":{"content":"on and on"}}]}`)
		v.began <- struct{}{}
		<-r.Context().Done()
		v.left <- struct{}{}
	default:
		v.stream(
			w, `{"choices":[{"delta":{"content":"Your key is `+key+`"}}]}`, `{"choices":[{"delta":{"content":"."},"finish_reason":"stop"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130}}`, "[DONE]",
		)
	}
}

func (v *vendor) call(w http.ResponseWriter, command string) {
	v.stream(
		w, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"shell","arguments":`+
			strconv.Quote(`{"command":`+strconv.Quote(command)+`}`)+`}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130}}`, "[DONE]",
	)
}

func (v *vendor) stream(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		fmt.Fprintf(w, "data: %s\n\n", e)
		_ = http.NewResponseController(w).Flush()
	}
}

// startServer starts a server with an agent "spy" whose provider is the vendor.
func startServer(t *testing.T, v *vendor) *live {
	t.Helper()
	s := &live{T: t, home: filepath.Join(t.TempDir(), "home"), cwd: t.TempDir(), log: &bytes.Buffer{}}
	s.prepare = func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "VENDOR_KEY="+canary) }
	if err := os.Mkdir(s.home, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"providers":{"vendor":{"type":"openai","base_url":"%s/v1","api_key_env":"VENDOR_KEY"}},"default_model":"vendor/m"}`, v.URL)
	if err := os.WriteFile(filepath.Join(s.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.again()
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"spy","cwd":%q,"approvals":"ask"}`, s.cwd))
	return s
}

// socket is where the model of the only agent is.
func (s *live) socket() string {
	s.Helper()
	found, err := filepath.Glob(filepath.Join(s.home, "run", "sockets", "*", "*"))
	if err != nil || len(found) != 1 {
		s.Fatalf("sockets %v, %v, want one", found, err)
	}
	return found[0]
}

// follow reads an agent's events until the server ends, and allows whatever the
// agent asks for; the result waits for the end.
func (s *live) follow(agent string) (all func() string) {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+"/agent/"+agent+"/events?after=0", nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	text := make(chan string, 1)
	go func() {
		defer res.Body.Close()
		var all strings.Builder
		lines := bufio.NewScanner(res.Body) // the server ends it
		lines.Buffer(nil, 2<<20)
		for lines.Scan() {
			fmt.Fprintln(&all, lines.Text())
			data, _ := strings.CutPrefix(lines.Text(), "data: ")
			if gjson.Get(data, "type").Str == "permission_request" {
				s.call("/agent/"+agent, "respond_permission", fmt.Sprintf(`{"request_id":%q,"decision":"allow_once"}`, gjson.Get(data, "request_id").Str))
			}
		}
		text <- all.String()
	}()
	return func() string { return <-text }
}

// inMemory looks for a text in all that a process can write to and has in memory: of what it has only reserved, the race detector's share has terabytes.
func inMemory(pid int, text string) (bool, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, err
	}
	defer mem.Close()
	pages, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return false, err
	}
	defer pages.Close()
	looked := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || mode[0] != 'r' || mode[1] != 'w' {
			continue
		}
		there, err := present(pages, from, min(to, from+256<<20))
		if err != nil {
			return false, err
		}
		for _, one := range there {
			data, _ := io.ReadAll(io.NewSectionReader(mem, one[0], one[1]-one[0])) // a page may be gone by now
			looked += len(data)
			if bytes.Contains(data, []byte(text)) {
				return true, nil
			}
		}
	}
	if looked == 0 {
		return false, fmt.Errorf("nothing of process %d could be read", pid)
	}
	return false, nil
}

// present are the parts of a range of addresses that are in memory, or swapped out, by the pagemap of the process: 64 bits a page.
func present(pagemap io.ReaderAt, from, to int64) (parts [][2]int64, err error) {
	const size, inMemoryOrSwap = 8, 3 << 6 // the two highest bits
	page := int64(os.Getpagesize())
	entries := make([]byte, (to-from)/page*size)
	n, err := pagemap.ReadAt(entries, from/page*size)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for i := 0; i+size <= n; i += size {
		if entries[i+size-1]&inMemoryOrSwap == 0 { // little endian
			continue
		}
		at := from + int64(i/size)*page
		if last := len(parts) - 1; last >= 0 && parts[last][1] == at {
			parts[last][1] += page
		} else {
			parts = append(parts, [2]int64{at, at + page})
		}
	}
	return parts, nil
}
