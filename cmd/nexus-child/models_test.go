package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"nexus.internal/child/provider"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
)

// service lists its models after a while.
type service struct {
	after time.Duration
	ids   []string
	err   error
}

func (s service) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(func(provider.Delta, error) bool) {}
}

func (s service) Models(ctx context.Context) ([]protocol.Model, error) {
	timer := time.NewTimer(s.after)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
	}
	var all []protocol.Model
	for _, id := range s.ids {
		all = append(all, protocol.Model{ModelID: id, ModelName: strings.ToUpper(id), ContextWindow: 9})
	}
	return all, s.err
}

// One silent provider spoiled the whole list: they were asked one after the
// other, and the time of the last was the time that was left.
func TestListModels(t *testing.T) {
	home := t.TempDir()
	text := `{"providers":{"openai":{"type":"openai","api_key_env":"UNSET_KEY"},"silent":{"type":"openai","auth_method":"none"},
		"mute":{"type":"openai","auth_method":"none"},"slow":{"type":"openai","auth_method":"none"},
		"broken":{"type":"openai","auth_method":"none"},"listed":{"type":"openai","auth_method":"none","models":[{"id":"b"},{"id":"c","name":"Sea","context_window":7}]},
		"down":{"type":"openai","auth_method":"none","models":[{"id":"d","name":"Dee"}]}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{"NEXUS_HOME=" + home}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m := &models{current: &configuration{f: &flags{}, current: c}, of: c, log: zap.NewNop(), opened: map[string]provider.Provider{
			"silent": service{after: time.Hour}, "mute": service{after: time.Hour},
			"slow": service{after: 7 * time.Second, ids: []string{"s"}}, "broken": service{err: errors.New("down")},
			"listed": service{ids: []string{"a", "b", "c"}}, "down": service{after: time.Hour},
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // as a child asks
		defer cancel()
		list, err := m.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{
			"broken: its models are not known: down", "mute: its models are not known: no answer within 8s", "silent: its models are not known: no answer within 8s",
		}, list.Notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		var got []string
		for _, model := range list.Models {
			got = append(got, fmt.Sprintf("%s/%s %s %d", model.Provider, model.ModelID, model.ModelName, model.ContextWindow))
			if _, err := c.Models.Choose(config.Wish{Provider: model.Provider, Model: model.ModelID}); err != nil {
				t.Errorf("%v is listed and cannot be chosen: %v", model, err)
			}
		}
		if diff := cmp.Diff([]string{
			"down/d Dee 0", "listed/b B 9", "listed/c Sea 7", "offline/offline nexus offline model 128000", "slow/s S 9",
		}, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// A provider with very many models leaves room for those of the others: the list is one frame.
func TestListManyModels(t *testing.T) {
	home := t.TempDir()
	text := `{"providers":{"many":{"type":"openai","auth_method":"none"},"one":{"type":"openai","auth_method":"none"}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{"NEXUS_HOME=" + home}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 20_000 {
		ids = append(ids, fmt.Sprintf("%06d%s", i, strings.Repeat(`"`, 200)))
	}
	m := &models{current: &configuration{f: &flags{}, current: c}, of: c, log: zap.NewNop(), opened: map[string]provider.Provider{
		"many": service{ids: ids}, "one": service{ids: []string{"s"}},
	}}
	list, err := m.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, model := range list.Models {
		count[model.Provider]++
	}
	data, err := json.Marshal(list)
	if err != nil || count["many"] < 100 || count["one"] != 1 || count["offline"] != 1 || len(data) > frame.MaxWritten {
		t.Errorf("%v in %d bytes, %v", count, len(data), err)
	}
	if want := fmt.Sprintf("many: it has 20000 models, the first %d are listed; models of config.json can name others", count["many"]); len(list.Notes) != 1 || list.Notes[0] != want {
		t.Errorf("notes %q, want %q", list.Notes, want)
	}

	// Of 5,000 short names, 493 were listed, and nothing said so.
	ids = ids[:0]
	for i := range 5000 {
		ids = append(ids, fmt.Sprintf("m%d", i))
	}
	m.opened["many"] = service{ids: ids}
	if list, err = m.List(t.Context()); err != nil || len(list.Models) != 5000+2 || list.Notes != nil {
		t.Errorf("%d models of short names, notes %q, %v", len(list.Models), list.Notes, err)
	}
}
