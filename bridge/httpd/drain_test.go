package httpd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/replay"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// anyone may call anything.
type anyone struct{}

func (anyone) Find(string) error { return nil }
func (anyone) Depart(context.Context, *rpc.Call, api.Method) (func(), error) {
	return func() {}, nil
}
func (anyone) Permit(context.Context, *rpc.Call, api.Method) error   { return nil }
func (anyone) Enter(context.Context, []string, bool) (func(), error) { return func() {}, nil }
func (anyone) Moved(agent, machine string) error {
	return &rpc.MovedError{Agent: agent, Machine: machine, Err: supervisor.ErrMoved}
}
func (anyone) Root(id string) string { return id }

// A call that is allowed while the server drains has its answer, also if what it did lets the
// drain end before it is answered.
func TestStopWaitsForAnswersOfTheDrain(t *testing.T) {
	home := t.TempDir()
	keys, err := auth.OpenKeyring(auth.KeyPath(home, 1), filepath.Join(home, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	m := metrics.New(metrics.Options{Supervisor: supervisor.New(supervisor.Options{})})
	router := rpc.NewRouter(rpc.Options{Access: anyone{}, Metrics: m, Log: zap.NewNop()})
	called, ending := make(chan struct{}), make(chan struct{})
	rpc.Handle(router, api.ListAgents, func(ctx context.Context, _ *rpc.Call, _ api.None) (api.ListAgentsResult, error) {
		close(called)
		<-ending
		return api.ListAgentsResult{Agents: []api.AgentInfo{}}, context.Cause(ctx)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests := rpc.NewDrainGroup()
	requests.Close()
	s, err := httpd.New(httpd.Options{
		Addr: ln.Addr().String(), Router: router, Requests: requests, Keys: keys, Signatures: new(replay.Cache), Budget: rpc.NewBudget(rpc.DefaultBudget, rpc.DefaultKeyBudget),
		Log: zap.NewNop(), Lines: rpc.NewLineLimit(zap.NewNop()), Metrics: m,
	})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	answered := make(chan struct{})
	defer close(answered)
	work.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	work.Go(func() {
		select {
		case <-called:
		case <-answered: // and never called
		}
		s.StopAccepting()
		stopping := make(chan struct{})
		work.Go(func() {
			close(stopping)
			s.Stop(errors.New("the server ends"))
		})
		<-stopping
		close(ending)
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+ln.Addr().String()+"/rpc", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"list_agents"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+keys.Key().Reveal())
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), `"agents":[]`) {
		t.Errorf("HTTP %d %s, %v", response.StatusCode, body, err)
	}
}
