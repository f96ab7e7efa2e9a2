package turn_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// service is a provider whose window holds that many bytes of text. It counts
// its requests, and writes summaries as it is told to.
type service struct {
	holds     int // bytes; 0: any
	refuses   int // that many requests, however small
	summarise []any
	answers   [][]any // the last is given again and again
	asked     []string
	requests  []provider.Request
}

func (s *service) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	size := 0
	for _, m := range r.Messages {
		size += len(m.Content)
	}
	var answer []any
	switch {
	case s.refuses > 0 || s.holds > 0 && size > s.holds:
		s.refuses--
		s.asked = append(s.asked, "too large")
		answer = []any{lost{CacheReadInputTokens: 1}, fmt.Errorf("prompt is too long: %w", provider.ErrContextWindow)}
	case strings.HasPrefix(r.System, "Summarise"):
		s.asked = append(s.asked, "summary")
		answer = s.summarise
	default:
		s.asked = append(s.asked, "answer")
		s.requests = append(s.requests, r)
		answer = s.answers[0]
		if len(s.answers) > 1 {
			s.answers = s.answers[1:]
		}
	}
	return (&script{answers: [][]any{answer}}).Stream(ctx, r)
}

func (*service) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// talk is a conversation of turns with that many bytes each.
func talk(window uint64, sizes ...int) *conversation.Conversation {
	d := conversation.New(nil, conversation.Preamble{ContextWindow: window})
	for i, n := range sizes {
		d.Add(protocol.Message{Role: protocol.RoleUser, Content: fmt.Sprint("turn ", i)},
			protocol.Message{Role: protocol.RoleAssistant, Content: strings.Repeat("x", n)})
	}
	return d
}

var shortSummary = []any{provider.Text{Text: "short"}, stop}

func TestTheContextIsKept(t *testing.T) {
	errNoSummary := errors.New("no summary today")
	tests := []struct {
		name         string
		conversation *conversation.Conversation
		service      service
		full         int // of the journal
		offline      bool
		never        bool
		abort        bool // after a minute
		asked        string
		stop         protocol.StopReason
		err          error
		first        string // of the conversation's messages afterwards
		told         int    // that it was compacted
		input        uint64 // tokens of the turn
	}{
		{
			name: "room enough", conversation: talk(4000, 400, 400), asked: "answer",
			stop: "completed", first: "turn 0", input: 10,
		},
		{
			name: "at the threshold the model summarises", conversation: talk(4000, 5000, 5000, 400), service: service{summarise: shortSummary},
			asked: "summary answer", stop: "completed", first: "Summary of the earlier conversation:\nshort", told: 1, input: 20,
		},
		{
			name: "where it fails to, nothing is lost", conversation: talk(4000, 5000, 5000, 400), service: service{summarise: []any{errNoSummary}},
			asked: "summary answer", stop: "completed", first: "turn 0", input: 10,
		},
		{
			name: "offline it is done by rule", conversation: talk(4000, 5000, 5000, 400), offline: true,
			asked: "answer", stop: "completed", first: "Summary of the earlier conversation:\nturn 0", told: 1, input: 10,
		},
		{
			name: "never, if so wanted: the oldest turns leave the request alone", conversation: talk(4000, 9000, 5000, 400), never: true,
			asked: "answer", stop: "completed", first: "turn 0", input: 10,
		},
		{
			name: "what cannot be saved is not done", conversation: talk(4000, 9000, 5000, 400), service: service{summarise: shortSummary}, full: 2,
			asked: "summary answer", stop: "error", err: errFull, first: "turn 0", input: 20,
		},
		{
			name: "an abort ends it", conversation: talk(4000, 5000, 5000, 400), service: service{summarise: []any{hang{}}}, abort: true,
			asked: "summary", stop: "aborted", first: "turn 0",
		},
		{
			name: "the provider's window is smaller than was thought", conversation: talk(4000, 3000, 3000, 400), service: service{summarise: shortSummary, holds: 5000},
			asked: "too large summary answer", stop: "completed", first: "Summary of the earlier conversation:\nshort", told: 1, input: 20,
		},
		{
			name: "also where compaction is never wanted", conversation: talk(4000, 3000, 3000, 400), service: service{summarise: shortSummary, holds: 5000}, never: true,
			asked: "too large summary answer", stop: "completed", first: "Summary of the earlier conversation:\nshort", told: 1, input: 20,
		},
		{
			name: "also where the model cannot summarise", conversation: talk(4000, 3000, 3000, 400), service: service{summarise: []any{errNoSummary}, holds: 500},
			asked: "too large too large answer", stop: "completed", first: "turn 0", input: 10,
		},
		{
			name: "also where it could not before", conversation: talk(4000, 5000, 5000, 400), service: service{summarise: []any{errNoSummary}, holds: 500},
			asked: "too large too large answer", stop: "completed", first: "turn 0", input: 10,
		},
		{
			name: "and does not even hold the prompt", conversation: talk(4000), service: service{holds: 1},
			asked: "too large", stop: "error", err: provider.ErrContextWindow, first: "go",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.abort {
					timer := time.AfterFunc(time.Minute, cancel)
					defer timer.Stop()
				}
				s, journal, told := &tt.service, &disk{full: tt.full}, listener{}
				s.answers = [][]any{{hello, stop}}
				r := turn.Runner{
					Compactor: turn.Compactor{
						Provider: s, Model: "m", Offline: tt.offline, Conversation: tt.conversation, Journal: journal, Log: zap.NewNop(),
					},
					MaxIterations: 5, CompactAt: 80, Listener: &told,
				}
				if tt.never {
					r.CompactAt = 0
				}
				begin := time.Now()
				got := r.Run(ctx, turn.Input{ID: "1", Message: "go"})
				if got.Stop != tt.stop || !errors.Is(got.Err, tt.err) {
					t.Errorf("got %s, %v, want %s, %v", got.Stop, got.Err, tt.stop, tt.err)
				}
				if took := time.Since(begin); took > time.Minute+100*time.Millisecond {
					t.Errorf("the abort took %v", took-time.Minute)
				}
				if diff := cmp.Diff(tt.asked, strings.Join(s.asked, " ")); diff != "" {
					t.Errorf("asked for (-want +got):\n%s", diff)
				}
				if first := tt.conversation.Messages()[0].Content; !strings.HasPrefix(first, tt.first) {
					t.Errorf("the first message is %.80q, want %q", first, tt.first)
				}
				if told.compactions != tt.told || got.Usage.InputTokens != tt.input {
					t.Errorf("told %d times, want %d; %d tokens, want %d", told.compactions, tt.told, got.Usage.InputTokens, tt.input)
				}
				compacted := 0
				for _, record := range journal.records {
					if _, ok := record.(transcript.Compaction); ok {
						compacted++
					}
				}
				if want := max(tt.told, min(tt.full-1, 1)); compacted != want {
					t.Errorf("%d compactions in the journal, want %d", compacted, want)
				}
			})
		})
	}
}

// A prompt or an answer that is too large fails its turn and costs nothing of
// what was said before.
func TestTooLargeCostsNoHistory(t *testing.T) {
	tests := []struct {
		name   string
		prompt string
		holds  int // bytes of a request, for the service
		answer []any
		want   error
		asked  string
	}{
		{"prompt", strings.Repeat("p", 40_000), 0, nil, conversation.ErrTooLarge, "answer"},
		{"prompt, as only the service knows", strings.Repeat("p", 9000), 5000, nil, provider.ErrContextWindow, "too large too large answer"},
		{"answer", "go", 0, []any{provider.Text{Text: strings.Repeat("a", conversation.MaxAnswer)}, provider.Text{Text: "a"}}, turn.ErrEndless, "answer answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := talk(8000, 300, 300, 300, 300)
			s := &service{holds: tt.holds, answers: [][]any{{hello, stop}}, summarise: shortSummary}
			if tt.answer != nil {
				s.answers = [][]any{tt.answer, {hello, stop}}
			}
			r := turn.Runner{
				Compactor:     turn.Compactor{Provider: s, Model: "m", Conversation: d, Journal: &disk{}, Log: zap.NewNop()},
				MaxIterations: 5, CompactAt: 80, Listener: &listener{},
			}
			before := slices.Clone(d.Messages())
			if got := r.Run(t.Context(), turn.Input{ID: "1", Message: tt.prompt}); !errors.Is(got.Err, tt.want) || got.Usage.InputTokens > 2000 ||
				got.Usage.CacheReadInputTokens != uint64(strings.Count(tt.asked, "too large")) { // one for each try that was refused
				t.Errorf("ended with %v for %+v", got.Err, got.Usage)
			}
			if after := d.Messages(); len(after) <= len(before) || !cmp.Equal(before, after[:len(before)]) || after[len(before)].Content != tt.prompt {
				t.Fatalf("the conversation of %d messages and a prompt has %d, the first %.80q", len(before), len(after), after[0].Content)
			}
			if got := r.Run(t.Context(), turn.Input{ID: "2", Message: "and now?"}); got.Stop != protocol.StopCompleted {
				t.Fatalf("the next turn ended with %s, %v", got.Stop, got.Err)
			}
			sent := s.requests[len(s.requests)-1].Messages
			if last := sent[len(sent)-1]; !cmp.Equal(before, sent[:len(sent)-1]) || last.Content != "and now?" {
				t.Errorf("the next turn sends %d messages, want %d", len(sent), len(before)+1)
			}
			if got := strings.Join(s.asked, " "); got != tt.asked {
				t.Errorf("asked for %s, want %s", got, tt.asked)
			}
		})
	}
}

// A service that refuses once is no end of the conversation.
func TestOneRefusalIsForgotten(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{System: strings.Repeat("s", 4800), ContextWindow: 128_000})
	s := &service{refuses: 1, answers: [][]any{{hello, stop}}, summarise: shortSummary}
	r := turn.Runner{
		Compactor:     turn.Compactor{Provider: s, Model: "m", Conversation: d, Journal: &disk{}, Log: zap.NewNop()},
		MaxIterations: 5, CompactAt: 80, Listener: &listener{},
	}
	if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "hi"}); !errors.Is(got.Err, provider.ErrContextWindow) {
		t.Errorf("the refusal is told as %v", got.Err)
	}
	if got := d.Breakdown().Available; got < 100_000 {
		t.Errorf("%d tokens are available afterwards", got)
	}
	for i := range 3 {
		if got := r.Run(t.Context(), turn.Input{ID: fmt.Sprint(i + 2), Message: "hi"}); got.Stop != protocol.StopCompleted {
			t.Errorf("a later turn ended with %s, %v", got.Stop, got.Err)
		}
	}
	if got, want := strings.Join(s.asked, " "), "too large answer answer answer"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

// A running turn that cannot be made smaller is not sent again as it is.
func TestTheSameIsNotAskedTwice(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{ContextWindow: 128_000})
	s := &service{holds: 100, answers: [][]any{{provider.Text{Text: strings.Repeat("x", 200)}, call("c", "long", `{}`), stop}}}
	r := turn.Runner{
		Compactor:     turn.Compactor{Provider: s, Model: "m", Conversation: d, Journal: &disk{}, Log: zap.NewNop()},
		MaxIterations: 5, CompactAt: 80, Listener: &listener{},
		Tools: tool.NewRegistry([]tool.Tool{says("r")}, tool.Options{}),
	}
	if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "hi"}); !errors.Is(got.Err, provider.ErrContextWindow) {
		t.Errorf("ended with %v", got.Err)
	}
	if got, want := strings.Join(s.asked, " "), "answer too large"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

// A turn of many long results is not lost for outgrowing the window.
func TestATurnOutgrowsTheWindow(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{ContextWindow: 2000})
	long := strings.Repeat("r", 2500)
	s := &service{holds: 6100}
	for i := range 10 {
		s.answers = append(s.answers, []any{call(fmt.Sprint("c", i), "long", `{}`), stop})
	}
	s.answers = append(s.answers, []any{hello, stop})
	r := turn.Runner{
		Compactor:     turn.Compactor{Provider: s, Model: "m", Conversation: d, Journal: &disk{}, Log: zap.NewNop()},
		MaxIterations: 20, CompactAt: 80, Listener: &listener{},
		Tools: tool.NewRegistry([]tool.Tool{says(long)}, tool.Options{}),
	}
	if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "go"}); got.Stop != protocol.StopCompleted {
		t.Fatalf("ended with %s, %v", got.Stop, got.Err)
	}
	last := s.requests[len(s.requests)-1].Messages
	if got := last[len(last)-1].Content; got != long {
		t.Errorf("the last result is %.60q", got)
	}
	if got := last[2].Content; got != "[result of 2500 bytes left out]" {
		t.Errorf("the first result is %.60q", got)
	}
	if got := d.Messages()[2]; got.Content != long || !cmp.Equal(got.Changed, []string{"/a"}) {
		t.Errorf("the conversation has %.60q, %v", got.Content, got.Changed)
	}
}

// says is a tool that always says the same.
type says string

func (says) Spec() tool.Spec { return tool.Spec{Name: "long", InputSchema: []byte(`{}`)} }

func (s says) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Text: string(s), Changed: []string{"/a"}}, nil
}

// What was not counted because the answer was cut off is estimated: the request,
// and what has come of the answer.
func TestPartialUsage(t *testing.T) {
	down := errors.New("the service is down")
	tests := []struct {
		name   string
		answer []any
		want   protocol.TurnUsage
		saved  bool // with a message
	}{
		{"whole", []any{hello, stop}, protocol.TurnUsage{InputTokens: 10, OutputTokens: 1}, true},
		{"in the text", []any{provider.Text{Text: strings.Repeat("t", 400)}, down}, protocol.TurnUsage{InputTokens: 29, OutputTokens: 100}, true},
		{"in a call", []any{provider.CallStart{ID: "a", Name: "x"}, provider.CallInput{ID: "a", Fragment: strings.Repeat("i", 40)}, down}, protocol.TurnUsage{InputTokens: 29, OutputTokens: 10}, false},
		{"by the provider's estimate", []any{provider.Text{Text: "t"}, lost{InputTokens: 30, OutputTokens: 1, Estimated: true}, down}, protocol.TurnUsage{InputTokens: 30, OutputTokens: 1, Estimated: true}, true},
		{"the second time", []any{lost{InputTokens: 30, Estimated: true}, provider.Retry{Reason: "429"}, hello, stop}, protocol.TurnUsage{InputTokens: 40, OutputTokens: 1, Estimated: true}, true},
		{"too large at first", []any{lost{InputTokens: 30, Estimated: true}, provider.ErrContextWindow}, protocol.TurnUsage{InputTokens: 30, Estimated: true}, false},
		{"before anything", []any{down}, protocol.TurnUsage{}, false},
		{"before anything, twice", []any{provider.Retry{Reason: "429"}, down}, protocol.TurnUsage{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &disk{}
			r := turn.Runner{
				Compactor: turn.Compactor{
					Provider: &script{answers: [][]any{tt.answer}}, Model: "m", Conversation: conversation.New(nil, conversation.Preamble{ContextWindow: 1000}),
					Journal: j, Log: zap.NewNop(),
				},
				MaxIterations: 1, Listener: &listener{},
			}
			got := r.Run(t.Context(), turn.Input{ID: "1", Message: strings.Repeat("p", 100)})
			if diff := cmp.Diff(tt.want, got.Usage); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			last := j.records[len(j.records)-1].(transcript.Message)
			if tt.saved != (last.Usage != nil) || tt.saved && !cmp.Equal(*last.Usage, tt.want) {
				t.Errorf("saved with %+v: %+v", last.Message, last.Usage)
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	begun := provider.CallStart{ID: "a", Name: "long"}
	end := func(reason provider.FinishReason) provider.Stop {
		return provider.Stop{Usage: protocol.TurnUsage{OutputTokens: 1}, Reason: reason}
	}
	tests := []struct {
		name   string
		answer []any
		stop   protocol.StopReason
		err    error
		events string
	}{
		{"cut off in a call", []any{begun, end(provider.FinishLength)}, "error", turn.ErrCutCall, "toolcall_start toolcall_result"},
		{"cut off in the text", []any{hello, end(provider.FinishLength)}, "max_tokens", nil, "text_delta"},
		{"held back", []any{end(provider.FinishFiltered)}, "error", turn.ErrHeldBack, ""},
		{"cut off in the reasoning", []any{provider.Thinking{Text: "hm"}, end(provider.FinishLength)}, "max_tokens", nil, "thinking_delta"},
		{"held back in part", []any{hello, end(provider.FinishFiltered)}, "content_filter", nil, "text_delta"},
		{"begun and left", []any{begun, hello, end(provider.FinishStop)}, "completed", nil, "toolcall_start text_delta toolcall_result"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var events listener
			r := turn.Runner{
				Compactor: turn.Compactor{
					Provider: &script{answers: [][]any{tt.answer}}, Model: "m", Conversation: conversation.New(nil, conversation.Preamble{ContextWindow: 1000}),
					Journal: &disk{}, Log: zap.NewNop(),
				},
				MaxIterations: 1, Listener: &events,
			}
			if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "go"}); got.Stop != tt.stop || !errors.Is(got.Err, tt.err) {
				t.Errorf("got %s, %v, want %s, %v", got.Stop, got.Err, tt.stop, tt.err)
			}
			if diff := cmp.Diff(tt.events, strings.Join(events.names, " ")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// What signs the model's reasoning is kept with it, and of all images the latest
// are sent.
func TestSignaturesAndImages(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{ContextWindow: 1_000_000})
	image := func(name string, size int64) protocol.Image {
		return protocol.Image{Mime: "image/png", Size: size, SHA256: name}
	}
	for i := range 6 {
		d.Add(protocol.Message{Role: protocol.RoleUser, Images: []protocol.Image{image(fmt.Sprint(i), 5<<20)}})
	}
	s := &service{answers: [][]any{{provider.Thinking{Text: "hm"}, provider.ThinkingSignature{Text: "sig"}, hello, stop}}}
	r := turn.Runner{
		Compactor:     turn.Compactor{Provider: s, Model: "m", Conversation: d, Journal: &disk{}, Log: zap.NewNop()},
		MaxIterations: 1, Listener: &listener{},
		Images: digests{},
	}
	r.Run(t.Context(), turn.Input{ID: "1", Message: "look", Images: []protocol.Image{image("new", 1<<20)}})
	var got []string
	for _, m := range s.requests[0].Messages {
		for _, i := range m.Images {
			data, err := s.requests[0].Images.Get(i)
			if err != nil {
				data = []byte("-")
			}
			got = append(got, string(data))
		}
	}
	if want := "- - - 3 4 5 new"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	all := d.Messages()
	if last := all[len(all)-1]; last.ThinkingSignature != "sig" || last.Thinking != "hm" {
		t.Errorf("got %+v", last)
	}
}
