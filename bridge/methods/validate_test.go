package methods_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
)

// Keys for less than all have one check of code at a time together, and take turns, however many each asks for; a full key does not wait for them.
func TestChecksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var mu sync.Mutex // guards begun
		var begun []string
		end := make(chan struct{})
		h.check = func(ctx context.Context, p api.ValidateCodeParams) error {
			mu.Lock()
			begun = append(begun, p.Code)
			mu.Unlock()
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		want := func(codes ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(begun, codes) {
				t.Errorf("begun %v, want %v", begun, codes)
			}
		}
		var asking sync.WaitGroup
		ask := func(by rpc.Principal, code string) {
			asking.Go(func() {
				if got := h.callBy(by, "", "validate_code", `{"code":"`+code+`","language":"go","timeout_s":600}`); !strings.Contains(got, `"result"`) {
					t.Errorf("%s: %s", code, got)
				}
			})
			synctest.Wait()
		}
		key := func(id string) rpc.Principal {
			return rpc.Principal{Grant: auth.Grant{Scope: auth.ScopeAgent, ID: id}}
		}
		ask(key("a"), "a1")
		ask(key("a"), "a2")
		ask(key("a"), "a3")
		ask(key("b"), "b1")
		ask(key("c"), "c1")
		want("a1")
		ask(rpc.Principal{Grant: auth.Grant{Scope: auth.ScopeFull}}, "full")
		want("a1", "full")
		if got := h.callBy(key("b"), "", "validate_code", `{"code":"b2","language":"go","timeout_s":1}`); !strings.Contains(got, "other checks took the 1s that this one had") {
			t.Errorf("without a turn: %s", got)
		}
		end <- struct{}{} // a1 or full
		end <- struct{}{}
		want("a1", "full", "b1")
		end <- struct{}{}
		want("a1", "full", "b1", "c1")
		end <- struct{}{}
		want("a1", "full", "b1", "c1", "a2")
		close(end)
		asking.Wait()
		want("a1", "full", "b1", "c1", "a2", "a3")
	})
}
