package provider_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// answers gives the same answer to each request, and keeps the models that were asked.
type answers struct {
	deltas []provider.Delta
	err    error
	lost   protocol.TurnUsage
	asked  *[]string
}

func (a answers) Stream(_ context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		*a.asked = append(*a.asked, r.Model)
		r.Lost.Add(a.lost)
		for _, d := range a.deltas {
			if !yield(d, nil) {
				return
			}
		}
		if a.err != nil {
			yield(nil, a.err)
		}
	}
}

func (answers) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// The second model answers where the first one is down, from then on, and not where the first one
// refuses, or had begun to answer.
func TestFallback(t *testing.T) {
	down := func(reason string) error {
		return &provider.Error{Brief: "503", Reason: reason, Err: errors.New("it is down, and says more")}
	}
	again, hello := provider.Retry{Attempt: 2}, provider.Text{Text: "hello"}
	stop := provider.Stop{Usage: protocol.TurnUsage{InputTokens: 3, OutputTokens: 2}}
	switched := provider.Switched{Model: "p/second", Reason: "503"}
	for _, tt := range []struct {
		name    string
		first   answers
		want    []provider.Delta // of the first of two requests
		asked   []string
		used    uint64 // input tokens of the second model, of both requests
		lost    uint64
		refused bool
	}{
		{"both are well", answers{deltas: []provider.Delta{hello, stop}}, []provider.Delta{hello, stop}, []string{"first", "first"}, 0, 0, false},
		{"down", answers{deltas: []provider.Delta{again}, err: down(protocol.Unreachable), lost: protocol.TurnUsage{InputTokens: 1}}, []provider.Delta{again, switched, hello, stop}, []string{"first", "second", "second"}, 8, 3, false},
		{"wants to be left alone", answers{err: down(protocol.RateLimited)}, []provider.Delta{switched, hello, stop}, []string{"first", "second", "second"}, 8, 2, false},
		{"refuses", answers{err: down(protocol.Credentials)}, nil, []string{"first", "first"}, 0, 0, true},
		{"broke off", answers{deltas: []provider.Delta{hello}, err: down(protocol.Unreachable)}, []provider.Delta{hello}, []string{"first", "first"}, 0, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			tt.first.asked = &asked
			f := &provider.Fallback{
				Provider: tt.first, Model: "second", Name: "p/second",
				Second: answers{deltas: []provider.Delta{hello, stop}, asked: &asked, lost: protocol.TurnUsage{InputTokens: 1}},
			}
			var lost protocol.TurnUsage
			for i := range 2 {
				var got []provider.Delta
				var last error
				for d, err := range f.Stream(t.Context(), provider.Request{Model: "first", Lost: &lost}) {
					if last = err; err == nil {
						got = append(got, d)
					}
				}
				if (last != nil) != tt.refused {
					t.Errorf("got %v", last)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" && i == 0 {
					t.Errorf("-want +got\n%s", diff)
				}
			}
			if diff := cmp.Diff(tt.asked, asked); diff != "" {
				t.Errorf("asked: -want +got\n%s", diff)
			}
			if f.Used().InputTokens != tt.used || lost.InputTokens != tt.lost {
				t.Errorf("used %+v, lost %+v", f.Used(), lost)
			}
		})
	}
}
