package bridge_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// A send that comes while its agent gets another name is for nobody, whether it finds the one
// that is being ended or none; nothing of it is done.
func TestSendWhileRenamed(t *testing.T) {
	for _, found := range []bool{true, false} {
		t.Run(fmt.Sprint("found ", found), func(t *testing.T) {
			moving, goOn := make(chan struct{}, 2), make(chan struct{})
			r := rigged(t, func(r *rig, o *bridge.Options) {
				r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
					return supervisortest.Play{Command: stateful, StopAfter: time.Second}
				}
				o.Store = withForget{o.Store, func(string) {
					moving <- struct{}{}
					<-goOn
				}}
			})
			r.create("a")
			ctx := r.ctx()
			r.save("home/sessions/a.jsonl", []byte(savedText), 1)
			renamed := make(chan error, 1)
			go func() {
				_, err := client.Do(r.ctx(), r.client, "", api.RenameSession, api.RenameSessionParams{OldName: "a", NewName: "b"})
				renamed <- err
			}()
			if a, err := r.sup.Agent("a"); found && err == nil {
				for a.Info().State != supervisor.Stopping && ctx.Err() == nil {
					runtime.Gosched()
				}
			} else {
				<-moving
			}
			sent := r.sendAsync("a", api.SendParams{Content: "hello"})
			there := func() bool { return r.server.Waiting("a") == 2 } // the renaming and the send
			if found {
				there = func() bool { return r.sessions.Last() == "a" } // which is said once it is found
			}
			for !there() && ctx.Err() == nil {
				runtime.Gosched()
			}
			close(goOn)
			if err := <-renamed; err != nil {
				t.Fatal(err)
			}
			wantError(t, r.await(sent).err, -32602, "AGENT_NOT_FOUND", 404)
			r.say("b", "the one that goes on")
			// Afterwards there is none of that name.
			err := r.client.Call(r.ctx(), "/agent/a", "get_tokens", nil, &api.GetTokensResult{})
			wantError(t, err, -32602, "AGENT_NOT_FOUND", 404)
			// Nor is the one that went on taken for it, by what comes only now.
			for _, err := range r.client.Events(r.ctx(), "a", 0, client.Filter{}) {
				wantError(t, err, -32602, "AGENT_NOT_FOUND", 404)
				break
			}
		})
	}
}
