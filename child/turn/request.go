package turn

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

const (
	// maxTries is how often a request is made, each time smaller, that the
	// provider finds too large for the context window.
	maxTries = 3
	// maxImages bounds the images of one request, in bytes. The latest are
	// sent, the others are told of in words.
	maxImages = 20 << 20
)

// requestAnswer asks once, or again with less where the provider finds the request too
// large. It is nil if nothing could be asked. Where there is no less, the error
// is the provider's.
func (t *run) requestAnswer(ctx context.Context) (*answer, error) {
	percent := t.CompactAt
	var refused *answer
	var why error
	for try := 1; ; try++ {
		window, err := t.Conversation.Fit(t.first)
		if err == nil {
			if err := t.makeRoom(ctx, percent, refused != nil); err != nil {
				return nil, err
			}
			window, err = t.Conversation.Fit(t.first)
		}
		switch {
		case refused != nil && (err != nil || !window.Smaller(refused.window)):
			return refused, why
		case err != nil:
			return nil, err
		}
		a := &answer{run: t, window: window, ids: map[string][]string{}}
		if refused != nil {
			a.lost = refused.lost
		}
		request := t.request(window)
		request.Lost = &a.lost
		err = t.stream(ctx, request, a)
		if a.usage != nil && !a.usage.Estimated {
			t.Conversation.RecordAnswer(window, *a.usage)
		}
		if !errors.Is(err, provider.ErrContextWindow) || a.begun || try == maxTries || ctx.Err() != nil || !t.Conversation.RecordTooLarge(window) {
			return a, err
		}
		t.Log.Info("the context window was exceeded, so the request is made smaller", zap.Int("try", try), zap.String("error", provider.Brief(err)))
		refused, why = a, err
		percent = 1 // whatever may be summarised is
	}
}

// makeRoom compacts, once in a turn, if the conversation takes percent of what
// is available. Only the end of ctx is an error: without a summary the oldest
// turns are left out of requests, and all that was to be summarised after the
// provider refused one.
func (t *run) makeRoom(ctx context.Context, percent int, refused bool) error {
	if percent <= 0 || t.compacted && !t.unsummarised {
		return nil
	}
	old := t.Conversation.DueForCompaction(percent)
	if old == nil {
		return nil
	}
	if !t.compacted {
		t.compacted = true
		t.Emit(protocol.CompactionStart{})
		done, err := t.Compact(ctx, old)
		t.usage.Add(done.Usage)
		end := protocol.CompactionEnd{Reason: done.Reason}
		switch {
		case ctx.Err() != nil:
			end.Reason = "the turn was aborted"
			t.Emit(end)
			return context.Cause(ctx)
		case err != nil:
			end.Reason = provider.Brief(err)
			t.Log.Warn("the conversation could not be compacted", zap.String("error", end.Reason))
			t.unsummarised = true
		case done.Reason == "":
			end = protocol.CompactionEnd{Compacted: true, TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter}
			t.Compacted()
		}
		t.Emit(end)
	}
	if refused && t.unsummarised {
		t.first = len(old)
	}
	return nil
}

func (t *run) request(window conversation.Window) provider.Request {
	r := provider.Request{
		Model: t.Model, System: t.System, Messages: window.Messages, TextBytes: window.TextBytes,
		Images: t.images(window), Parameters: t.Parameters,
	}
	if t.Tools != nil {
		r.Tools = t.Tools.Specs()
	}
	return r
}

// images are those of the messages that are sent.
func (t *run) images(window conversation.Window) sentImages {
	if window.Images == 0 {
		return sentImages{images: t.Images}
	}
	room, sent := int64(maxImages), map[string]bool{}
	for i := len(window.Messages) - 1; i >= 0; i-- {
		for _, image := range window.Messages[i].Images {
			if !sent[image.SHA256] && image.Size <= room {
				sent[image.SHA256] = true
				room -= image.Size
			}
		}
	}
	return sentImages{t.Images, sent}
}

// sentImages implements [provider.ImageReader] for one request.
type sentImages struct {
	images provider.ImageReader
	sent   map[string]bool // digests
}

func (s sentImages) Get(image protocol.Image) ([]byte, error) {
	switch {
	case s.images == nil:
		return nil, errors.New("images cannot be read here")
	case !s.sent[image.SHA256]:
		return nil, fmt.Errorf("it is one of the older images: of all in the conversation the latest %d MiB are shown", maxImages>>20)
	}
	return s.images.Get(image)
}
