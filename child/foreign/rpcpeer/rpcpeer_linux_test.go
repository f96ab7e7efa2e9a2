package rpcpeer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/foreigntest"
	"nexus.internal/child/foreign/rpcpeer"
)

func TestMain(m *testing.M) { foreigntest.Main(m) }

// handler keeps what came, and answers "ok" once release is closed.
type handler struct {
	took    []string
	release chan struct{}
}

func (h *handler) Take(m rpcpeer.Message) {
	h.took = append(h.took, m.Method)
	if m.Method == "refused" {
		close(h.release)
	}
}

func (h *handler) Answered(method string) { h.took = append(h.took, "answer to "+method) }
func (h *handler) Answer(ctx context.Context, m rpcpeer.Message) (any, error) {
	if m.Method == "unknown" {
		return nil, rpcpeer.NotFound(m.Method)
	}
	select {
	case <-h.release:
	case <-ctx.Done():
	}
	return "ok", nil
}

// driver starts a peer with a program and does nothing else.
type driver struct {
	handler *handler
	options rpcpeer.Options
	peer    *rpcpeer.Peer
}

func (d *driver) Open(_ context.Context, o foreign.Opening) (foreign.Session, error) {
	program, err := o.Launch()
	if err != nil {
		return nil, err
	}
	d.options.Log = zap.NewNop()
	d.peer = rpcpeer.Start(program, d.handler, d.options)
	return d, nil
}

func (*driver) About() foreign.About        { return foreign.About{} }
func (d *driver) Program() *foreign.Program { return d.peer.Program() }
func (d *driver) Close()                    { d.peer.Close() }
func (*driver) Prompt(context.Context, foreign.Prompt, foreign.Sink) (foreign.Done, error) {
	return foreign.Done{}, nil
}

// open runs a script of the shell.
func open(t *testing.T, d *driver, script string) *foreigntest.Agent {
	t.Helper()
	if d.handler == nil {
		d.handler = &handler{}
	}
	if d.handler.release == nil {
		d.handler.release = make(chan struct{})
		close(d.handler.release)
	}
	return foreigntest.Open(t, foreigntest.Options{Driver: d, Command: []string{"sh", "-c", script}})
}

// TestIDs echoes the ids of a program as it wrote them.
func TestIDs(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	ids := []string{`1`, `-7`, `9007199254740993`, `1.50`, `"a\u00e9\/b"`, `""`}
	var script strings.Builder
	var want []string
	for _, id := range ids { // one after the other: answers have no order
		script.WriteString(`printf '%s\n' '{"id":` + id + `,"method":"m","jsonrpc":"2.0"}'; read -r line; printf '%s\n' "$line" >>` + out + "\n")
		want = append(want, `{"jsonrpc":"2.0","id":`+id+`,"result":"ok"}`)
	}
	script.WriteString(`printf '%s\n' '{"id":"x","method":"unknown"}'; read -r line; printf '%s\n' "$line" >>` + out)
	want = append(want, `{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"the client has no method \"unknown\""}}`)
	a := open(t, &driver{}, script.String())
	<-a.Gone()
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(got)), "\n")); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// TestOrder hands on notifications and the end of a call in the order in which the program wrote them.
func TestOrder(t *testing.T) {
	d := &driver{options: rpcpeer.Options{NoVersion: true}}
	a := open(t, d, `read -r line; [ "$line" = '{"id":1,"method":"go"}' ] || exit 9
echo '{"method":"one"}'; echo 'no message'; echo '{"method":"two"}'; echo '{"id":1,"result":{"n":5}}'; echo '{"method":"three"}'; echo '{"id":1,"result":6}'`)
	result, err := d.peer.Call(t.Context(), "go", nil)
	if err != nil || result.Get("n").Int() != 5 {
		t.Errorf("result %s, %v", result.Raw, err)
	}
	<-a.Gone()
	_ = a.Close()
	if diff := cmp.Diff([]string{"one", "two", "answer to go", "three"}, d.handler.took); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestErrors are the program's own, the end of ctx, and the program's end.
func TestErrors(t *testing.T) {
	d := &driver{}
	a := open(t, d, `read -r line; echo '{"id":1,"error":{"code":-32000,"message":"no","data":{"details":"not today"}}}'; read -r line; read -r line; exit 5`)
	_, err := d.peer.Call(t.Context(), "first", nil)
	if e, ok := errors.AsType[*rpcpeer.Error](err); !ok || e.Code != -32000 || e.Error() != "no: not today (-32000)" {
		t.Errorf("first: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.peer.Call(ctx, "second", nil); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "does not answer second") {
		t.Errorf("second: %v", err)
	}
	for range 2 { // the first is cut off by the end, the second comes after it
		if _, err := d.peer.Call(t.Context(), "third", nil); !errors.Is(err, foreign.ErrEnded) || !strings.Contains(err.Error(), "exit status 5") {
			t.Errorf("third: %v", err)
		}
	}
	<-a.Gone()
}

// TestBusy refuses requests beyond the bound, and none of the others is lost.
func TestBusy(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	d := &driver{handler: &handler{release: make(chan struct{})}}
	a := open(t, d, `i=0; while [ $i -lt 65 ]; do echo '{"id":'$i',"method":"m"}'; i=$((i+1)); done
read -r line; echo "$line" >`+out+`; echo '{"method":"refused"}'; head -n 64 >>`+out)
	<-a.Gone()
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(got), `"result":"ok"`); n != 64 || !strings.HasPrefix(string(got), `{"jsonrpc":"2.0","id":64,"error":{"code":-32001`) {
		t.Errorf("%d answers: %.300s", n, got)
	}
}
