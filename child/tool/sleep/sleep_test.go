package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/protocol"
)

func TestSleep(t *testing.T) {
	for _, tt := range []struct {
		input, text, err string
		took             time.Duration
	}{
		{`{"seconds":2}`, "slept 2 s", "", 2 * time.Second},
		{`{"seconds":0.25}`, "slept 0.25 s", "", 250 * time.Millisecond},
		{`{"seconds":0}`, "slept 0 s", "", 0},
		{`{"seconds":3600}`, "slept 3600 s", "", time.Hour},
		{`{"seconds":3600.5}`, "", `member "seconds" must be between 0 and 3600, is 3600.5`, 0},
		{`{"seconds":-1}`, "", `member "seconds" must be between 0 and 3600, is -1`, 0},
		{`{"seconds":"2"}`, "", `member "seconds" must be a number, is a string`, 0},
		{`{}`, "", `member "seconds" is missing`, 0},
		{`{"seconds":1,"hours":1}`, "", `member "hours" is not known`, 0},
	} {
		t.Run(tt.input, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := sleep.New().Run(t.Context(), tool.Call{Input: jsontext.Value(tt.input)})
				if took := time.Since(began); got.Text != tt.text || took != tt.took {
					t.Errorf("%q after %v, want %q after %v", got.Text, took, tt.text, tt.took)
				}
				if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
					t.Errorf("error %v, want %q", err, tt.err)
				}
			})
		})
	}
}

// A wait that is longer than the default time of calls is not ended by it.
func TestLongSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tool.NewRegistry([]tool.Tool{sleep.New()}, tool.Options{})
		got := r.Run(t.Context(), "", []protocol.ToolCall{{ID: "1", Name: "sleep", Input: jsontext.Value(`{"seconds":3600}`)}}, nil)
		if got[0].Text != "slept 3600 s" {
			t.Errorf("got %+v", got[0])
		}
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, abort := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, abort)
		began := time.Now()
		_, err := sleep.New().Run(ctx, tool.Call{Input: jsontext.Value(`{"seconds":3000}`)})
		if !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}
